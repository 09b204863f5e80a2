"""Four ways to shift an embedded test set, in the role that ImageNet's variants play."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from .sampling import subsample_classes
from .splits import Split


def add_noise(picture: Image.Image, rng: np.random.Generator, deviation: float) -> Image.Image:
    """Add Gaussian noise to every pixel, as a share of the range, and clip."""
    noisy = np.asarray(picture) + rng.normal(0, deviation * 255, (picture.height, picture.width))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def blur(picture: Image.Image, pixels: float) -> Image.Image:
    """Blur with a Gaussian of this standard deviation."""
    return picture.filter(ImageFilter.GaussianBlur(pixels))


def turn(picture: Image.Image, rng: np.random.Generator, degrees: float) -> Image.Image:
    """Turn by a random angle of up to so many degrees."""
    return picture.rotate(rng.uniform(-degrees, degrees), Image.Resampling.BICUBIC)


def invert(picture: Image.Image) -> Image.Image:
    """Swap dark and light."""
    return ImageOps.invert(picture)


class Shifted:
    """The test part of a drawn data set under a shift; the training list only names the classes."""

    def lists(self, split: Split) -> Split:
        """Only the test part."""
        return Split(split.test, [], split.test)

    def select(self, cfg: Any, split: Split) -> Split:
        """No few-shot sample: there is nothing to train on."""
        return subsample_classes(split, cfg.DATASET.SUBSAMPLE_CLASSES)
