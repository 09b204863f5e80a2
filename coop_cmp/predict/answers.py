"""What a trained model says about images, and which images those are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.special import softmax

from coop_cmp.errors import UserError
from coop_cmp.runs.own_data import IMAGE_SUFFIXES


@dataclass(frozen=True)
class Answers:
    """What a model says about N images.

    Attributes:
        images: Their paths, or their numbers for images without one.
        classnames: The C names.
        logits: Calibrated if a calibrator was given, shape [N, C].
        threshold: The least confidence of an answer.
    """

    images: list[str]
    classnames: list[str]
    logits: np.ndarray
    threshold: float = 0.0

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Class probabilities [N, C]."""
        return softmax(self.logits.astype(np.float64), axis=1)

    @property
    def confidence(self) -> np.ndarray:
        """The largest probability of each image [N]."""
        return self.probabilities.max(1)

    @property
    def names(self) -> list[str | None]:
        """The name of the likeliest class of each image; None below the threshold: don't know."""
        best = self.probabilities.argmax(1)
        sure = self.confidence >= self.threshold
        return [self.classnames[k] if ok else None for k, ok in zip(best, sure, strict=True)]

    def top(self, count: int = 5) -> list[list[tuple[str, float]]]:
        """The likeliest classes of each image with their probabilities, the likeliest first."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :count]
        return [
            [(self.classnames[k], float(row[k])) for k in ranked]
            for row, ranked in zip(self.probabilities, order, strict=True)
        ]


def image_files(
    given: Iterable[str | Path | Image.Image], scratch: Path
) -> Iterator[tuple[str, Path]]:
    """Names and files of images; those without a file are stored without loss in a folder."""
    for number, image in enumerate(given):
        if isinstance(image, Image.Image):
            path = scratch / f"{number}.png"
            image.save(path)
            yield str(number), path
            continue
        path = Path(image).expanduser()
        if path.is_dir():
            found = (file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
            yield from ((str(file), file) for file in sorted(found))
        elif path.is_file():
            yield str(path), path
        else:
            raise UserError(f"{path}: there is no such image or folder")
