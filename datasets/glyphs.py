"""Letters and digits in eight typefaces that GlyphCLIP has not seen: an embedded data set with many
classes.

47 classes, as in the merged sets of EMNIST (Cohen et al., 2017): the digits, the capitals, and the
small letters that do not look like their capitals. Every picture is a character in a random face of
a random typeface, a little turned, slanted, moved, faded and noisy. The typefaces come as packages
from PyPI; GlyphCLIP was trained on those that matplotlib ships.
"""

from __future__ import annotations

import importlib.util
import string
from functools import cache
from pathlib import Path

import numpy as np
from dassl.data.datasets import DATASET_REGISTRY
from PIL import Image, ImageDraw, ImageFont

from coop_cmp.errors import UserError

from .base import Sizes
from .drawn import DrawnDataset
from .splits import Split

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
CHARACTERS = string.digits + string.ascii_uppercase + "abdefghnqrt"
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
TRAIN, VAL, TEST = 20, 10, 40  # pictures per class
SEED = 47
PAGE, SIZE = 192, 32


def class_name(character: str) -> str:
    """``seven``, ``capital a``, ``lowercase a``."""
    if character.isdigit():
        return DIGITS[int(character)]
    return f"{'capital' if character.isupper() else 'lowercase'} {character.lower()}"


@cache
def faces(typeface: str) -> list[Path]:
    """The font files of a typeface, one for each of its faces."""
    package = importlib.util.find_spec(f"font_{typeface}")
    if package is None or not package.submodule_search_locations:
        raise UserError(
            "the Glyphs data set is drawn with fonts from PyPI, and one is not installed: "
            f"pip install {' '.join(f'font-{name}'.replace('_', '-') for name in TYPEFACES)}"
        )
    files = sorted(Path(package.submodule_search_locations[0], "files").iterdir())
    # Of two formats of a face the TrueType one, and no file that holds several faces at once.
    named = {f.stem: f for f in files if f.suffix in (".otf", ".ttf") and "Variable" not in f.stem}
    return list(named.values())


def draw_character(character: str, rng: np.random.Generator) -> Image.Image:
    """A character, light on dark, 32 x 32, in a random face and pose."""
    typeface = faces(TYPEFACES[rng.integers(len(TYPEFACES))])
    font = ImageFont.truetype(str(typeface[rng.integers(len(typeface))]), PAGE // 2)
    page = Image.new("L", (PAGE, PAGE))
    ImageDraw.Draw(page).text((PAGE / 2, PAGE / 2), character, 255, font, anchor="mm")
    page = page.rotate(rng.normal(0, 6), Image.Resampling.BICUBIC)
    slant = (1, rng.normal(0, 0.12), 0, 0, 1, 0)
    page = page.transform(page.size, Image.Transform.AFFINE, slant, Image.Resampling.BICUBIC)
    glyph = page.crop(page.getbbox())
    scale = rng.uniform(20, 28) / max(glyph.size)
    width, height = (max(1, round(side * scale)) for side in glyph.size)
    shift = rng.integers(-1, 2, 2)
    place = ((SIZE - width) // 2 + shift[0], (SIZE - height) // 2 + shift[1])
    picture = Image.new("L", (SIZE, SIZE))
    picture.paste(glyph.resize((width, height), Image.Resampling.LANCZOS), place)
    levels = np.asarray(picture) * rng.uniform(0.6, 1) + rng.uniform(0, 25)
    levels = levels + rng.normal(0, 12, levels.shape)
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


@DATASET_REGISTRY.register()
class Glyphs(DrawnDataset):
    """940 training, 470 validation and 1,880 test pictures of 47 classes."""

    dataset_dir = "glyphs"
    split_file = "split_Glyphs.json"
    sizes = Sizes(47, 940, 470, 1880)

    def plan(self) -> Split:
        """So many pictures of each class in each part."""
        split, ends = Split([], [], []), np.cumsum([0, TRAIN, VAL, TEST])
        for label, character in enumerate(CHARACTERS):
            name = class_name(character)
            items = [(f"{label:02d}/{i:03d}.png", label, name) for i in range(ends[-1])]
            for part, start, end in zip(split, ends, ends[1:], strict=False):
                part.extend(items[start:end])
        return split

    def draw(self, path: str, label: int) -> Image.Image:
        """The character of the class, in a pose that the number in the path decides."""
        rng = np.random.default_rng([SEED, label, int(Path(path).stem)])
        return draw_character(CHARACTERS[label], rng)
