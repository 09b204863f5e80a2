"""Four ways to shift an embedded test set, in the role that ImageNet's variants play."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from .sampling import subsample_classes
from .splits import Split

Shift = Callable[[Image.Image, np.random.Generator], Image.Image]


def noise(deviation: float) -> Shift:
    """Add Gaussian noise to every pixel, as a share of the range, and clip."""

    def change(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
        size = (picture.height, picture.width)
        noisy = np.asarray(picture) + rng.normal(0, deviation * 255, size)
        return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))

    return change


def blur(pixels: float) -> Shift:
    """Blur with a Gaussian of this standard deviation."""
    return lambda picture, _: picture.filter(ImageFilter.GaussianBlur(pixels))


def turn(degrees: float) -> Shift:
    """Turn by a random angle of up to so many degrees."""
    return lambda picture, rng: picture.rotate(
        rng.uniform(-degrees, degrees), Image.Resampling.BICUBIC
    )


def invert(picture: Image.Image, _: np.random.Generator) -> Image.Image:
    """Swap dark and light."""
    return ImageOps.invert(picture)


class Shifted:
    """The test part of a drawn data set under a shift; the training list only names the classes."""

    shift: staticmethod[[Image.Image, np.random.Generator], Image.Image]

    def lists(self, split: Split) -> Split:
        """Only the test part."""
        return Split(split.test, [], split.test)

    def change(self, picture: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Shift the picture."""
        return self.shift(picture, rng)

    def select(self, cfg: Any, split: Split) -> Split:
        """No few-shot sample: there is nothing to train on."""
        return subsample_classes(split, cfg.DATASET.SUBSAMPLE_CLASSES)
