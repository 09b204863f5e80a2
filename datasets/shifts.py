"""Four ways to shift an embedded test set, in the role that ImageNet's variants play."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter, ImageOps

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
