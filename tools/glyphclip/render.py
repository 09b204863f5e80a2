"""Pictures of signs for pre-training GlyphCLIP, drawn from matplotlib's fonts.

Every glyph is kept as two distance fields: to its outline (a printed sign of any weight) and to its
skeleton (the same sign drawn with a pen of any width). Warping a distance field and thresholding it
afterwards gives deformed strokes of controlled width, for a whole batch at once.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from coop_cmp.datasets.signs import SIGNS

STYLES = ("serif", "sans", "mono", "italic")  # what a font is
ATTRIBUTES = (
    "any", "handwritten", "printed", "thin", "bold", *STYLES, "red", "green", "blue", "yellow",
    "blurry", "noisy", "coarse", "left", "right", "inverted", "small",
)  # fmt: skip
COLOURS = torch.tensor([[1.0, 0.25, 0.25], [0.25, 1, 0.25], [0.35, 0.35, 1], [1, 1, 0.25]])
CANVAS = 64  # side of a stored distance field, in pixels
GLYPH = 44  # longest side of the glyph on it, which leaves room to bend
DRAWN = 48  # side of the drawing before it is framed
IMAGE = 32  # side of the picture
HELD_OUT_FONTS = ("DejaVuSerif-Italic", "DejaVuSans-Bold", "cmss10", "STIXGeneralBolIta")
HANDWRITTEN = 0.2  # share of the pictures
SYMBOL_FONTS = ("cmex10", "cmsy10")  # they have arrows and brackets in the places of letters


class GlyphBank(NamedTuple):
    """Distance fields [G, 2, 64, 64] (outline, skeleton), sign [G] and styles [G, 4] of each."""

    fields: Tensor
    signs: Tensor
    styles: Tensor


class Rendering(NamedTuple):
    """Images [N, 3, 32, 32] in [0, 1] and what is true of each: flags [N, len(ATTRIBUTES)]."""

    images: Tensor
    flags: Tensor


def font_files() -> list[Path]:
    """The TrueType fonts that matplotlib ships, in a fixed order."""
    import matplotlib

    return sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("*.ttf"))


def code_points(font: Path) -> list[tuple[int, str]]:
    """(code point, sign) of every sign in the font.

    Unicode's mathematical alphabets (script, sans-serif, monospaced, ...) count as further styles.
    """
    from matplotlib.ft2font import FT2Font

    found = []
    for code in sorted(FT2Font(str(font)).get_charmap()):
        styled = 0x1D400 <= code < 0x1D800 and "DOUBLE-STRUCK" not in unicodedata.name(
            chr(code), ""
        )
        sign = unicodedata.normalize("NFKC", chr(code)) if styled else chr(code)
        if sign in SIGNS:
            found.append((code, sign))
    return [] if font.stem in SYMBOL_FONTS else found


def styles(font: Path, code: int) -> list[bool]:
    """Which of ``STYLES`` hold for a glyph, by the names of its font and code point."""
    name = f"{font.stem} {unicodedata.name(chr(code)) if code > 0x1D000 else ''}"
    mono = "Mono" in name or "cmtt" in name or "MONOSPACE" in name
    serif = not mono and any(part in name for part in ("Serif", "STIX", "cmr", "cmb", "cmmi"))
    serif = serif and "SANS-SERIF" not in name
    italic = any(part in name for part in ("Italic", "Oblique", "Ita", "cmmi", "ITALIC", "SCRIPT"))
    return [serif, not (serif or mono), mono, italic]


def draw_glyph(font: ImageFont.FreeTypeFont, code: int) -> np.ndarray | None:
    """A filled glyph in the middle, longest side ``GLYPH``: bool [64, 64]; None if blank."""
    page = Image.new("L", (400, 400))
    ImageDraw.Draw(page).text((120, 80), chr(code), font=font, fill=255)
    box = page.getbbox()
    if box is None:
        return None
    glyph = page.crop(box)
    scale = GLYPH / max(glyph.size)
    size = tuple(max(1, round(side * scale)) for side in glyph.size)
    canvas = Image.new("L", (CANVAS, CANVAS))
    corner = ((CANVAS - size[0]) // 2, (CANVAS - size[1]) // 2)
    canvas.paste(glyph.resize((size[0], size[1]), Image.Resampling.BOX), corner)
    return np.asarray(canvas) > 127


def skeletonise(shapes: np.ndarray) -> np.ndarray:
    """Thin shapes [G, H, W] to lines one pixel wide (Zhang and Suen, 1984)."""
    shapes = shapes.copy()
    while True:
        before = shapes.sum()
        for corners in (((0, 2, 4), (2, 4, 6)), ((0, 2, 6), (0, 4, 6))):
            padded = np.pad(shapes, ((0, 0), (1, 1), (1, 1)))
            rows, columns = padded.shape[1], padded.shape[2]
            # The eight neighbours clockwise from the one above.
            steps = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
            around = [padded[:, 1 + y : rows - 1 + y, 1 + x : columns - 1 + x] for y, x in steps]
            count = sum(a.astype(np.int8) for a in around)
            rises = sum((~around[i] & around[(i + 1) % 8]).astype(np.int8) for i in range(8))
            drop = shapes & (count >= 2) & (count <= 6) & (rises == 1)
            for trio in corners:
                drop &= ~(around[trio[0]] & around[trio[1]] & around[trio[2]])
            shapes &= ~drop
        if shapes.sum() == before:
            return shapes


def build_bank(held_out: bool = False) -> GlyphBank:
    """Distance fields of every glyph of the training fonts, or of the held-out ones."""
    from scipy.ndimage import distance_transform_edt as distance

    shapes, signs, kinds = [], [], []
    for path in font_files():
        if (path.stem in HELD_OUT_FONTS) != held_out:
            continue
        font = ImageFont.truetype(str(path), 160)
        for code, sign in code_points(path):
            shape = draw_glyph(font, code)
            if shape is not None:
                shapes.append(shape)
                signs.append(SIGNS.index(sign))
                kinds.append(styles(path, code))
    filled = np.stack(shapes)
    fields = [
        np.stack([distance(~shape) - distance(shape), distance(~line)])
        for shape, line in zip(filled, skeletonise(filled), strict=True)
    ]
    return GlyphBank(
        torch.from_numpy(np.stack(fields)).float(), torch.tensor(signs), torch.tensor(kinds)
    )


class Renderer:
    """Draws random pictures of signs: pen, warp, framing, scanner, lens; repeatable for a seed."""

    def __init__(self, bank: GlyphBank, seed: int) -> None:
        self.bank = bank
        self.generator = torch.Generator().manual_seed(seed)
        self.by_sign = [torch.nonzero(bank.signs == c).flatten() for c in range(len(SIGNS))]

    def __call__(self, signs: Tensor) -> Rendering:
        """Draw each sign [N] once, in a random font and style."""
        n = len(signs)
        picks = self.uniform(n, 0, 1)
        glyphs = torch.stack(
            [(rows := self.by_sign[c])[int(p * len(rows))]
             for c, p in zip(signs.tolist(), picks.tolist(), strict=True)]
        )  # fmt: skip
        handwritten = self.chance(n, HANDWRITTEN)
        fields = self.bank.fields[glyphs, handwritten.long()][:, None]  # [N, 1, 64, 64]
        tilted = self.chance(n, 0.15)
        warped, left = self.warp(fields, tilted, handwritten)
        ink, weight = self.pen(warped, handwritten)
        small = self.chance(n, 0.15)
        images, coarse = self.scan(self.frame(ink, small), handwritten)
        images, colour, blurry, noisy, inverted = self.lens(images)
        font = self.bank.styles[glyphs] & ~handwritten[:, None]
        flags = torch.stack(
            [torch.ones(n, dtype=torch.bool), handwritten, ~handwritten, weight < 0.3,
             weight > 0.7, *font.t(), *(colour == c for c in range(len(COLOURS))), blurry, noisy,
             coarse, tilted & left, tilted & ~left, inverted, small], dim=1,
        )  # fmt: skip
        return Rendering(images, flags)

    def uniform(self, n: int, low: float, high: float) -> Tensor:
        """Random numbers [N]."""
        return torch.rand(n, generator=self.generator) * (high - low) + low

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers of this shape."""
        return torch.randn(*shape, generator=self.generator)

    def chance(self, n: int, probability: float) -> Tensor:
        """True with this probability: bool [N]."""
        return torch.rand(n, generator=self.generator) < probability

    def smooth(self, n: int, channels: int, knots: int) -> Tensor:
        """Smooth random fields [N, channels, 48, 48] with about unit variance at the knots."""
        spread = F.interpolate(
            torch.eye(knots)[None, None], size=(knots, DRAWN), mode="bicubic", align_corners=True
        )[0, 0]
        return spread.t() @ self.normal(n, channels, knots, knots) @ spread

    def warp(self, fields: Tensor, tilted: Tensor, handwritten: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate, shear, stretch and bend distance fields [N, 1, 64, 64]; and who leans left."""
        n = len(fields)
        left = self.chance(n, 0.5)
        turn = torch.where(left, 1.0, -1.0) * self.uniform(n, 0.3, 0.7)
        angle = torch.where(tilted, turn, self.normal(n) * 0.08)
        wild = torch.where(handwritten, 1.0, 0.4)
        shear, stretch = self.normal(n) * 0.2 * wild, (self.normal(n) * 0.15).exp()
        cos, sin = angle.cos() * 1.1, angle.sin() * 1.1
        theta = torch.zeros(n, 2, 3)
        theta[:, 0, 0], theta[:, 0, 1] = cos * stretch, cos * shear - sin
        theta[:, 1, 0], theta[:, 1, 1] = sin * stretch, sin * shear + cos
        grid = F.affine_grid(theta, [n, 1, DRAWN, DRAWN], align_corners=False)
        bend = self.smooth(n, 2, 4) * (wild * self.uniform(n, 0, 0.14))[:, None, None, None]
        bend = bend + self.smooth(n, 2, 7) * (wild * self.uniform(n, 0, 0.05))[:, None, None, None]
        bent = F.grid_sample(
            fields, grid + bend.permute(0, 2, 3, 1), padding_mode="border", align_corners=False
        )
        return bent, left

    def pen(self, fields: Tensor, handwritten: Tensor) -> tuple[Tensor, Tensor]:
        """Ink [N, 1, 48, 48] of strokes of random, uneven width; and their weight [N] in [0, 1]."""
        n = len(fields)
        weight = self.uniform(n, 0, 1)
        reach = torch.where(handwritten, 1.3 + 3.2 * weight, -1.0 + 2.5 * weight)
        uneven = self.smooth(n, 1, 6) * self.uniform(n, 0, 0.9)[:, None, None, None]
        return torch.sigmoid((reach[:, None, None, None] + uneven - fields) / 0.5), weight

    def frame(self, ink: Tensor, small: Tensor) -> Tensor:
        """Fit the ink into the picture as a form reader does, with play: [N, 1, 32, 32]."""
        n = len(ink)
        (x0, x1), (y0, y1) = self.extent(ink.amax((1, 2))), self.extent(ink.amax((1, 3)))
        width, height = (x1 - x0) / DRAWN, (y1 - y0) / DRAWN
        tall = height * torch.where(small, self.uniform(n, 1.6, 2.2), self.uniform(n, 0.98, 1.5))
        # The height is always filled; a thin shape stays thin and a wide one is not cut.
        wide = torch.maximum(tall * self.uniform(n, 0.8, 1.3), width)
        centre = torch.stack([x0 + x1, y0 + y1], 1) / DRAWN - 1 + self.normal(n, 2) * 0.03
        theta = torch.zeros(n, 2, 3)
        theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = wide, tall, centre
        grid = F.affine_grid(theta, [n, 1, IMAGE, IMAGE], align_corners=False)
        return F.grid_sample(ink, grid, align_corners=False)

    @staticmethod
    def extent(profile: Tensor) -> tuple[Tensor, Tensor]:
        """First inked position [N] of profiles [N, 48], and the one after the last."""
        seen = profile > 0.5
        seen[:, DRAWN // 2] |= ~seen.any(1)
        return seen.float().argmax(1), DRAWN - seen.flip(1).float().argmax(1)

    def scan(self, images: Tensor, handwritten: Tensor) -> tuple[Tensor, Tensor]:
        """Some pictures, most handwritten ones, pass a scanner of 8 x 8 cells and 17 levels."""
        n = len(images)
        cells = (F.avg_pool2d((images > 0.5).float(), IMAGE // 8) * 16).round() / 16
        coarse = F.interpolate(cells, size=IMAGE, mode="bicubic", align_corners=False).clamp(0, 1)
        passed = self.uniform(n, 0, 1) < torch.where(handwritten, 0.6, 0.03)
        return torch.where(passed[:, None, None, None], coarse, images), passed

    def lens(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Blur, colour, contrast, offset, noise and inversion; also which images got which."""
        n = len(images)
        blurry, noisy = self.chance(n, 0.08), self.chance(n, 0.08)
        ramp = torch.arange(-3.0, 4.0)
        kernel = torch.exp(-(ramp**2) / (2 * 1.5**2))
        kernel = kernel / kernel.sum()
        soft = F.conv2d(images, kernel.view(1, 1, 1, 7), padding=(0, 3))
        soft = F.conv2d(soft, kernel.view(1, 1, 7, 1), padding=(3, 0))
        images = torch.where(blurry[:, None, None, None], soft, images)
        colour = self.uniform(n, 0, 5 * len(COLOURS)).long()  # a fifth; beyond the list: none
        inverted = self.chance(n, 0.15) & (colour >= len(COLOURS))
        tint = torch.cat([COLOURS, torch.ones(1, 3)])[colour.clamp(max=len(COLOURS))]
        images = images * tint[:, :, None, None]  # [N, 3, 32, 32]
        contrast = self.uniform(n, 0.6, 1.1)[:, None, None, None]
        offset = self.uniform(n, -0.05, 0.1)[:, None, None, None]
        images = (images * contrast + offset).clamp(0, 1)
        images = torch.where(inverted[:, None, None, None], 1 - images, images)
        grain = torch.where(noisy, self.uniform(n, 0.1, 0.3), self.uniform(n, 0, 0.05))
        grey = self.normal(n, 1, IMAGE, IMAGE)
        images = images + grey * grain[:, None, None, None]
        return images.clamp(0, 1), colour, blurry, noisy, inverted
