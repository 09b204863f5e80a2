"""A hundred signs in eight typefaces that GlyphCLIP has not seen, and four shifted test sets.

The embedded data set with many classes: digits, letters of three scripts with their accents, and
symbols. Every picture is a sign in a random face of a random typeface, a little turned, slanted,
moved and faded, in uneven light and noisy. The typefaces come as packages from PyPI; GlyphCLIP was
trained on those that matplotlib ships.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
from dassl.data.datasets import DATASET_REGISTRY
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont

from coop_cmp.errors import UserError

from .base import Sizes
from .drawn import DrawnDataset, blur, invert, noise, register_shifts, turn
from .signs import KINDS, SIGNS, sign_name
from .splits import Split

# Packages font-roboto and so on. Licences: Apache 2.0 (Roboto, Caladea), OFL 1.1 (all others).
TYPEFACES = (
    "roboto",
    "caladea",
    "source_serif_pro",
    "source_sans_pro",
    "manrope",
    "hanken_grotesk",
    "fredoka_one",
    "intuitive",
)
SEED = 47
TRAIN, VAL, TEST = 16, 4, 20  # pictures per class
PAGE, SIZE = 96, 32
LIGHT = 125


def choose_classes() -> list[str]:
    """Return a hundred random signs, of each kind as many among the base as the new classes."""
    random = np.random.RandomState(SEED)
    kinds = [[kind[i] for i in random.permutation(len(kind))] for kind in KINDS]
    mixed = [sign for kind in kinds for sign in kind[: 2 * round(50 * len(kind) / len(SIGNS))]]
    return [mixed[i] for half in (0, 1) for i in 2 * random.permutation(len(mixed) // 2) + half]


CLASSES = choose_classes()


@cache
def faces(typeface: str) -> dict[Path, frozenset[int]]:
    """Return the font files of a typeface, one for each of its faces, with their code points."""
    package = importlib.util.find_spec(f"font_{typeface}")
    if package is None or not package.submodule_search_locations:
        raise UserError(
            "the Glyphs data set is drawn with fonts from PyPI, and one is not installed: "
            f"pip install {' '.join(f'font-{name}'.replace('_', '-') for name in TYPEFACES)}"
        )
    files = sorted(Path(package.submodule_search_locations[0], "files").iterdir())
    # Of two formats of a face the TrueType one, and no file that holds several faces at once.
    named = {f.stem: f for f in files if f.suffix in (".otf", ".ttf") and "Variable" not in f.stem}
    return {file: frozenset(FT2Font(str(file)).get_charmap()) for file in named.values()}


@cache
def faces_with(sign: str) -> list[list[Path]]:
    """Return, for each typeface that has the sign, its faces that have it."""
    having = [[f for f, codes in faces(name).items() if ord(sign) in codes] for name in TYPEFACES]
    return [files for files in having if files]


@cache
def load_font(file: Path) -> ImageFont.FreeTypeFont:
    """Open a font file once."""
    return ImageFont.truetype(str(file), PAGE // 2)


def draw_sign(sign: str, rng: np.random.Generator) -> Image.Image:
    """Draw a sign, light on dark, 32 x 32, in a random face and pose."""
    typefaces = faces_with(sign)
    typeface = typefaces[rng.integers(len(typefaces))]
    font = load_font(typeface[rng.integers(len(typeface))])
    page = Image.new("L", (PAGE, PAGE))
    ImageDraw.Draw(page).text((PAGE / 2, PAGE / 2), sign, 255, font, anchor="mm")
    page = page.rotate(rng.normal(0, 6), Image.Resampling.BICUBIC)
    slant = rng.normal(0, 0.12)  # about the middle of the page
    shear = (1, slant, -slant * PAGE / 2, 0, 1, 0)
    page = page.transform(page.size, Image.Transform.AFFINE, shear, Image.Resampling.BICUBIC)
    glyph = page.crop(page.getbbox())
    scale = rng.uniform(20, 28) / max(glyph.size)
    width, height = (max(1, round(side * scale)) for side in glyph.size)
    shift = rng.integers(-1, 2, 2)
    place = ((SIZE - width) // 2 + shift[0], (SIZE - height) // 2 + shift[1])
    picture = Image.new("L", (SIZE, SIZE))
    picture.paste(glyph.resize((width, height), Image.Resampling.LANCZOS), place)
    ink = np.asarray(picture) / 255
    levels = background(rng) * (1 - ink) + 255 * rng.uniform(0.6, 1) * ink
    levels = levels + rng.normal(0, 12, levels.shape)
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def background(rng: np.random.Generator) -> np.ndarray:
    """Return a dark page in uneven light, which rises by up to LIGHT from one side to the other."""
    angle, (y, x) = rng.uniform(0, 2 * np.pi), np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    rise = 0.5 + (np.cos(angle) * x + np.sin(angle) * y) / 8**0.5  # from 0 to 1
    return rng.uniform(0, 25) + rng.uniform(0, LIGHT) * rise


@DATASET_REGISTRY.register()
class Glyphs(DrawnDataset):
    """1,600 training, 400 validation and 2,000 test pictures of a hundred classes."""

    dataset_dir = "glyphs"
    split_file = "split_Glyphs.json"
    sizes = Sizes(100, 1600, 400, 2000)

    def plan(self) -> Split:
        """So many pictures of each class in each part."""
        split, ends = Split([], [], []), np.cumsum([0, TRAIN, VAL, TEST])
        for label, sign in enumerate(CLASSES):
            items = [(f"{label:02d}/{i:03d}.png", label, sign_name(sign)) for i in range(ends[-1])]
            for part, start, end in zip(split, ends, ends[1:], strict=False):
                part.extend(items[start:end])
        return split

    def draw(self, path: str, label: int) -> tuple[Image.Image, np.random.Generator]:
        """The sign of the class, in a pose that the number in the path decides."""
        rng = np.random.default_rng([SEED, label, int(Path(path).stem)])
        return draw_sign(CLASSES[label], rng), rng


register_shifts(Glyphs, Noise=noise(0.2), Blur=blur(1.5), Rotate=turn(30), Invert=invert)
