"""Reading image files."""

from __future__ import annotations

import os

import numpy as np
from PIL import Image, ImageOps

from coop_cmp.errors import DataError


class UnreadableImage(DataError, OSError):
    """A file of a data set that is not an image, or not a whole one."""


class ImageCache:
    """Reads images and keeps as many of them decoded as fit into a number of bytes."""

    def __init__(self, budget: int, upright: bool = False) -> None:
        self.left = budget
        self.upright = upright
        self._pixels: dict[str, np.ndarray] = {}

    def __call__(self, path: str) -> Image.Image:
        """The image, as `read_image` gives it."""
        known = self._pixels.get(path)
        if known is not None:
            return Image.fromarray(known)
        image = read_image(path, self.upright)
        pixels = np.array(image)
        if pixels.nbytes <= self.left:
            self._pixels[path] = pixels
            self.left -= pixels.nbytes
        return image


def read_image(path: str, upright: bool = False) -> Image.Image:
    """Read an image file as RGB, as CoOp-family code does: what the file's pixels say.

    Args:
        path: Of the file.
        upright: Turn the image as its EXIF data says, make transparent parts white and scale 16-bit
            grey values to 8 bits.

    Raises:
        FileNotFoundError: there is no such file.
        UnreadableImage: the file is not an image or not a whole one. The message has the path.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f'No file exists at "{path}"')
    try:
        with Image.open(path) as image:
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image)) if upright else image.convert("RGB")
    # Pillow's decoders also raise SyntaxError, ValueError, struct.error, DecompressionBombError...
    except Exception as error:
        raise UnreadableImage(
            f'cannot read the image "{path}": {error}; replace the file or remove it from the '
            "data set"
        ) from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # Pillow's own conversion clips 16 bits at 255
        grey = np.asarray(image).astype(np.int64)
        bits = 8 if image.mode == "I" and grey.max(initial=0) < 256 else 16
        image = Image.fromarray((grey.clip(0, 2**bits - 1) >> (bits - 8)).astype(np.uint8))
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "La", "RGBa"):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
