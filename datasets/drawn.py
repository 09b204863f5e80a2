"""Data sets whose pictures are made on the spot: nothing is downloaded.

Each has four shifted test sets, in the role that ImageNet's variants play.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from dassl.data.datasets import DATASET_REGISTRY
from PIL import Image, ImageFilter, ImageOps

from coop_cmp.errors import UserError

from .base import FewShotDataset, Sizes
from .sampling import subsample_classes
from .splits import Split, read_split, to_json

Shift = Callable[[Image.Image, np.random.Generator], Image.Image]


def is_complete(folder: Path, split_file: str) -> bool:
    """Whether the folder holds a readable split file and all its pictures."""
    try:
        split = read_split(folder / split_file)
        files = {os.path.join(folder, "images", path) for part in split for path, _, _ in part}
        return bool(files) and all(map(os.path.getsize, files))
    except (OSError, UserError):
        return False


class DrawnDataset(FewShotDataset):
    """Writes its pictures once below DATASET.ROOT, or below ``data`` when there is no root.

    A child says which pictures there are and makes each of them. One with a shift has only the
    test part, shifted; its training list only names the classes.
    """

    image_dir = "images"
    split_file: ClassVar[str]
    sizes: ClassVar[Sizes]
    shift: staticmethod[[Image.Image, np.random.Generator], Image.Image] | None = None

    def __init__(self, cfg: Any) -> None:
        cfg = cfg.clone()
        cfg.defrost()
        cfg.DATASET.ROOT = os.path.expanduser(cfg.DATASET.ROOT or "data")
        folder = Path(cfg.DATASET.ROOT, self.dataset_dir)
        if not is_complete(folder, self.split_file):
            self.build(folder)
        super().__init__(cfg)

    def read(self, cfg: Any) -> Split:
        """Read the split that was written with the pictures."""
        return read_split(Path(self.dataset_dir, self.split_file))

    def plan(self) -> Split:
        """All pictures, always the same, with paths ``<class>/<number>.png``."""
        raise NotImplementedError

    def draw(self, path: str, label: int) -> tuple[Image.Image, np.random.Generator]:
        """One of them and random numbers to shift it, which depend on its path and label alone."""
        raise NotImplementedError

    def select(self, cfg: Any, split: Split) -> Split:
        """Draw the few-shot images; there are none to train on under a shift."""
        if self.shift is None:
            return super().select(cfg, split)
        return subsample_classes(split, cfg.DATASET.SUBSAMPLE_CLASSES)

    def build(self, folder: Path) -> None:
        """Write the pictures and their split file.

        The folder is made beside its place and then renamed, so an interrupted
        run leaves no partial folder and simultaneous runs do not collide; an incomplete folder is
        replaced.
        """
        split = self.plan()
        if self.shift is not None:
            split = Split(split.test, [], split.test)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
            fresh = Path(scratch, "new")
            for path, label in {path: label for part in split for path, label, _ in part}.items():
                file = fresh / "images" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                picture, rng = self.draw(path, label)
                picture = picture if self.shift is None else self.shift(picture, rng)
                picture.save(file)
            (fresh / self.split_file).write_text(to_json(split._asdict()), encoding="utf-8")
            try:
                if folder.exists() and not is_complete(folder, self.split_file):
                    os.rename(folder, Path(scratch, "torn"))
                os.rename(fresh, folder)
            except OSError:
                # Another run was first, which is as good; anything else is an error.
                if not is_complete(folder, self.split_file):
                    raise


def register_shifts(plain: type[DrawnDataset], **shifts: Shift) -> None:
    """Register the test part of a data set under each shift, such as ``DigitsNoise``."""
    test = plain.sizes.test
    for name, shift in shifts.items():
        own = {
            "__doc__": f"The test part of {plain.__name__} under a shift.",
            "dataset_dir": f"{plain.dataset_dir}_{name.lower()}",
            "pictures_of": plain.dataset_dir,
            "sizes": Sizes(plain.sizes.classes, test, 0, test),
            "shift": staticmethod(shift),
        }
        DATASET_REGISTRY.register(type(f"{plain.__name__}{name}", (plain,), own))


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
