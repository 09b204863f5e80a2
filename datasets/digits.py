"""The handwritten digits of scikit-learn (Alpaydin and Kaynak, 1998) and four shifted test sets.

The embedded default.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dassl.data.datasets import DATASET_REGISTRY
from PIL import Image

from coop_cmp.errors import UserError

from .base import Sizes
from .drawn import DrawnDataset, blur, invert, noise, register_shifts, turn
from .sampling import by_label
from .splits import Split

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TRAIN, VAL = 40, 20  # pictures per class; the others are the test part
SIZE = 32
PARTS_SEED = 1797


def load_pictures() -> tuple[list[Image.Image], list[int]]:
    """The 1,797 digits, light on dark, enlarged from 8 x 8 to 32 x 32; and their labels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UserError(
            "the Digits data sets come with scikit-learn: pip install scikit-learn"
        ) from error
    digits = load_digits()
    levels = np.round(digits.images * (255 / 16)).astype(np.uint8)
    enlarged = [Image.fromarray(x).resize((SIZE, SIZE), Image.Resampling.BICUBIC) for x in levels]
    return enlarged, digits.target.tolist()


def fixed_split(labels: list[int]) -> Split:
    """Train, validation and test part, always the same, with paths ``<class>/<number>.png``."""
    items = [(f"{NAMES[y]}/{i:04d}.png", y, NAMES[y]) for i, y in enumerate(labels)]
    order = np.random.RandomState(PARTS_SEED).permutation(len(items))
    split = Split([], [], [])
    for _, pictures in sorted(by_label(items[i] for i in order).items()):
        split.train.extend(pictures[:TRAIN])
        split.val.extend(pictures[TRAIN : TRAIN + VAL])
        split.test.extend(sorted(pictures[TRAIN + VAL :]))
    return split


@DATASET_REGISTRY.register()
class Digits(DrawnDataset):
    """400 training, 200 validation and 1,197 test pictures of ten classes."""

    dataset_dir = "digits"
    split_file = "split_Digits.json"
    sizes = Sizes(10, 400, 200, 1197)

    def plan(self) -> Split:
        """The fixed split."""
        self.pictures, labels = load_pictures()
        return fixed_split(labels)

    def draw(self, path: str, label: int) -> tuple[Image.Image, np.random.Generator]:
        """The picture with the number in its path."""
        number = int(Path(path).stem)
        return self.pictures[number], np.random.default_rng([PARTS_SEED, number])


register_shifts(Digits, Noise=noise(0.4), Blur=blur(3), Rotate=turn(45), Invert=invert)
