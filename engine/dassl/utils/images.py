"""Reading image files."""

from __future__ import annotations

import os

import numpy as np
from PIL import Image, ImageOps


def read_image(path: str) -> Image.Image:
    """Read an image file as RGB, turned upright if its EXIF data says so.

    Transparent parts become white; 16-bit grey values are scaled to 8 bits.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: the file is not an image or not a whole one. The message has the path.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f'No file exists at "{path}"')
    try:
        with Image.open(path) as image:
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image))
    # Pillow's decoders also raise SyntaxError, ValueError, struct.error, DecompressionBombError...
    except Exception as error:
        raise OSError(
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
