"""RandAugment (Cubuk et al., 2020) and its kin, on PIL images.

Operations, strengths and the order in which random numbers are drawn are those of upstream Dassl,
so that a seed gives the same images on both engines.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

Operation = Callable[[Image.Image, float], Image.Image]
GREY = (125, 123, 114)  # what a hole is filled with


def _either_way(strength: float) -> float:
    return -strength if random.random() > 0.5 else strength


def _enhance(kind: Callable[[Image.Image], Any]) -> Operation:
    return lambda image, strength: kind(image).enhance(strength)


def _affine(*row: float, axis: str, relative: bool = False) -> Operation:
    """Make an operation that adds a multiple of (x, y, 1) to the x or y that is read."""

    def apply(image: Image.Image, strength: float) -> Image.Image:
        amount = _either_way(strength)
        if relative:
            amount *= image.size[axis == "y"]
        added = [amount * factor for factor in row]
        x, y = (added, [0.0] * 3) if axis == "x" else ([0.0] * 3, added)
        matrix = (1 + x[0], x[1], x[2], y[0], 1 + y[1], y[2])
        return image.transform(image.size, Image.Transform.AFFINE, matrix)

    return apply


def _add_and_solarize(image: Image.Image, addition: float) -> Image.Image:
    brighter = np.clip(np.asarray(image, dtype=int) + addition, 0, 255).astype(np.uint8)
    return ImageOps.solarize(Image.fromarray(brighter), 128)


def _hole(image: Image.Image, side: float) -> Image.Image:
    width, height = image.size
    left, top = (np.random.uniform(length, 1) for length in image.size)
    left, top = int(max(0, left - side / 2)), int(max(0, top - side / 2))
    image = image.copy()
    corners = (left, top, min(width, left + side), min(height, top + side))
    ImageDraw.Draw(image).rectangle(corners, GREY)
    return image


OPERATIONS: dict[str, Operation] = {
    "auto-contrast": lambda image, _: ImageOps.autocontrast(image),
    "brightness": _enhance(ImageEnhance.Brightness),
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "hole": _hole,
    "identity": lambda image, _: image,
    "invert": lambda image, _: ImageOps.invert(image),
    "move x": _affine(0, 0, 1, axis="x", relative=True),
    "move y": _affine(0, 0, 1, axis="y", relative=True),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "rotate": lambda image, degrees: image.rotate(_either_way(degrees)),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear x": _affine(0, 1, 0, axis="x"),
    "shear y": _affine(1, 0, 0, axis="y"),
    "shift x": _affine(0, 0, 1, axis="x"),
    "shift y": _affine(0, 0, 1, axis="y"),
    "solarize": lambda image, level: ImageOps.solarize(image, math.ceil(level)),
    "add and solarize": _add_and_solarize,
}
# What each draws from, with the weakest and the strongest it does.
Range = tuple[str, float, float]
FIXED: list[Range] = [
    ("auto-contrast", 0, 1), ("equalize", 0, 1), ("invert", 0, 1), ("rotate", 0, 30),
    ("posterize", 4, 8), ("solarize", 0, 256), ("add and solarize", 0, 110), ("color", 0.1, 1.9),
    ("contrast", 0.1, 1.9), ("brightness", 0.1, 1.9), ("sharpness", 0.1, 1.9), ("shear x", 0, 0.3),
    ("shear y", 0, 0.3), ("hole", 0, 40), ("shift x", 0, 100), ("shift y", 0, 100),
]  # fmt: skip
PLACES: list[Range] = [
    ("shear x", -0.3, 0.3), ("shear y", -0.3, 0.3), ("solarize", 0, 256),
    ("move x", -0.3, 0.3), ("move y", -0.3, 0.3),
]  # fmt: skip
RANDOM: list[Range] = [
    ("auto-contrast", 0, 1), ("brightness", 0.1, 1.9), ("color", 0.1, 1.9), ("contrast", 0.1, 1.9),
    ("equalize", 0, 1), ("identity", 0, 1), ("invert", 0, 1), ("posterize", 4, 8),
    ("rotate", -30, 30), ("sharpness", 0.1, 1.9), *PLACES,
]  # fmt: skip
FIXMATCH: list[Range] = [
    ("auto-contrast", 0, 1), ("brightness", 0.05, 0.95), ("color", 0.05, 0.95),
    ("contrast", 0.05, 0.95), ("equalize", 0, 1), ("identity", 0, 1), ("posterize", 4, 8),
    ("rotate", -30, 30), ("sharpness", 0.05, 0.95), *PLACES,
]  # fmt: skip


class RandAugment:
    """Apply ``n`` random operations at strength ``m`` out of 30."""

    operations: Sequence[Range] = FIXED

    def __init__(self, n: int = 2, m: int = 10) -> None:
        self.n, self.m = n, m

    def strength(self) -> float | None:
        """Draw how strong an operation is, from 0 to 1; None to leave it out."""
        return self.m / 30

    def __call__(self, image: Image.Image) -> Image.Image:
        for operation, weakest, strongest in random.choices(self.operations, k=self.n):
            strength = self.strength()
            if strength is not None:
                strength = strength * (strongest - weakest) + weakest
                image = OPERATIONS[operation](image, strength)
        return image


class RandAugmentFixMatch(RandAugment):
    """Apply ``n`` random operations at random strengths, as FixMatch (Sohn et al., 2020)."""

    operations = FIXMATCH

    def __init__(self, n: int = 2) -> None:
        self.n = n

    def strength(self) -> float | None:
        """Draw from 0 to 1."""
        return random.random()


class RandAugment2(RandAugment):
    """Apply ``n`` random operations at random strengths, each with probability ``p``."""

    operations = RANDOM

    def __init__(self, n: int = 2, p: float = 0.6) -> None:
        self.n, self.p = n, p

    def strength(self) -> float | None:
        """Draw from 0 to 1, after whether to apply it at all."""
        return None if random.random() > self.p else random.random()
