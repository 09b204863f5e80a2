"""What a test leaves of each image, as npz files.

``outcomes.npz`` holds what the model said about each image in a few numbers, for tables, intervals
and most figures; ``predictions.npz`` all logits.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write, read_file

if TYPE_CHECKING:
    from coop_cmp.metrics.samples import Samples, Scores

PREDICTIONS_FILE = "predictions.npz"
OUTCOMES_FILE = "outcomes.npz"
SMALL = 2**28  # bytes unpacked that any npz file may have; beyond, MOST_TIMES its own size
MOST_TIMES = 20


@dataclass(frozen=True)
class Predictions:
    """The test outputs of a run.

    Attributes:
        logits: float32 [N, C].
        labels: int64 [N].
        classnames: The C names.
        text_features: The classifier [C, E], where there is one for all images.
        scores: What makes probabilities of the logits.
    """

    logits: np.ndarray
    labels: np.ndarray
    classnames: list[str]
    text_features: np.ndarray | None = None
    scores: Scores = "softmax"

    def samples(self) -> Samples:
        """Return them to be measured."""
        from coop_cmp.metrics.samples import Samples

        return Samples(self.logits, self.labels, from_logits=True, scores=self.scores)


@dataclass(frozen=True)
class Outcomes:
    """What a model said about each of N test images, in a few numbers.

    Attributes:
        images: Image IDs (hashes of the files' names), uint64 [N].
        labels: int32 [N].
        predicted: The class with the largest probability, int32 [N].
        confidence: Its probability, float64 [N].
        nll: Minus the logarithm of the label's probability, float64 [N]; NaN for sigmoid scores.
    """

    images: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    nll: np.ndarray

    def samples(self) -> Samples:
        """Return them to be measured, by metrics that need no other class's probability."""
        from coop_cmp.metrics.samples import Samples

        return Samples.from_outcomes(self.labels, self.predicted, self.confidence, self.nll)


_OUTCOMES = {
    "images": (np.uint64, np.inf),
    "labels": (np.int32, np.inf),
    "predicted": (np.int32, np.inf),
    "confidence": (np.float64, 1),
    "nll": (np.float64, 1e9),
}
"""The type of each array, and its largest value."""


def image_numbers(names: Sequence[str]) -> np.ndarray:
    """Return an ID for each image, a hash of its name, so that test sets can share images [N]."""
    digests = [hashlib.blake2b(os.fsencode(name), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def labels_digest(labels: Any, classnames: Sequence[str]) -> str:
    """Return a digest of the labels of a test set in their order, and of its classes' names."""
    text = json.dumps([np.asarray(labels).tolist(), list(classnames)])
    return content_digest(text.encode())[:16]


def images_digest(images: np.ndarray) -> str:
    """Return a digest of the images of a test set in their order."""
    return content_digest(images.astype("<u8").tobytes())[:16]


def content_digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes, shortened to 32 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()[:32]


def write_predictions(
    path: str | os.PathLike[str],
    logits: Any,
    labels: Any,
    classnames: list[str],
    text_features: Any = None,
    scores: Scores = "softmax",
) -> str:
    """Write logits [N, C], labels [N], the C class names and perhaps features as an npz file.

    Returns:
        The digest of the file, for the record.
    """
    arrays: dict[str, Any] = {
        "logits": np.asarray(logits, dtype=np.float32),
        "labels": np.asarray(labels, dtype=np.int64),
        "classnames": np.asarray(classnames, dtype=np.str_),
        "scores": np.asarray(scores),
    }
    if text_features is not None:
        arrays["text_features"] = np.asarray(text_features, dtype=np.float32)
    return _write_npz(path, arrays)


def read_predictions(path: str | os.PathLike[str], digest: str | None = None) -> Predictions:
    """Read what :func:`write_predictions` wrote, of this digest if one is given."""
    arrays = read_npz(path, digest)
    missing = [name for name in ("logits", "labels", "classnames") if name not in arrays]
    if missing:
        raise UserError(f"{path}: {', '.join(missing)} missing; not a run's predictions")
    logits, labels, classnames = arrays["logits"], arrays["labels"], arrays["classnames"]
    if logits.ndim != 2 or (labels.shape, classnames.shape) != (logits.shape[:1], logits.shape[1:]):
        raise UserError(
            f"{path}: expected logits [N, C], labels [N] and classnames [C], got "
            f"{logits.shape}, {labels.shape} and {classnames.shape}"
        )
    kinds = logits.dtype.kind + labels.dtype.kind.replace("u", "i") + classnames.dtype.kind
    if kinds != "fiU" or not np.isfinite(logits).all():
        raise UserError(f"{path}: expected finite logits, whole labels and names as text")
    if labels.size and not 0 <= labels.min() <= labels.max() < logits.shape[1]:
        raise UserError(f"{path}: expected labels from 0 to {logits.shape[1] - 1}")
    features = arrays.get("text_features")
    if features is not None and (features.dtype.kind != "f" or not np.isfinite(features).all()):
        raise UserError(f"{path}: expected finite text features")
    scores: Any = str(arrays.get("scores", "softmax"))
    if scores not in ("softmax", "sigmoid"):
        raise UserError(f'{path}: expected scores "softmax" or "sigmoid", got "{scores}"')
    return Predictions(logits, labels, [str(name) for name in classnames], features, scores)


def write_outcomes(path: str | os.PathLike[str], outcomes: Outcomes) -> str:
    """Write what the model said about each image as an npz file, and return its digest."""
    return _write_npz(path, {k: getattr(outcomes, k).astype(t) for k, (t, _) in _OUTCOMES.items()})


def read_outcomes(path: str | os.PathLike[str], digest: str | None = None) -> Outcomes:
    """Read what :func:`write_outcomes` wrote, of this digest if one is given."""
    arrays = read_npz(path, digest)
    found = {name: arrays[name] for name in _OUTCOMES if name in arrays}
    types = {name: values.dtype for name, values in found.items()}
    shapes = {values.shape for values in found.values()}
    if types != {name: kind for name, (kind, _) in _OUTCOMES.items()} or len(shapes) > 1:
        raise UserError(f"{path}: not the outcomes of a run; do the run again")
    if found["labels"].ndim != 1 or not found["labels"].size:
        raise UserError(f"{path}: not the outcomes of a run, without any image; do the run again")
    for name, (_, most) in _OUTCOMES.items():
        values = found[name]
        is_sigmoid = name == "nll" and np.isnan(values).all()
        if not is_sigmoid and not (values.min() >= 0 and values.max() <= most):  # nor NaN
            raise UserError(f"{path}: {name} is out of range; do the run again")
    return Outcomes(**found)


def _write_npz(path: str | os.PathLike[str], arrays: dict[str, Any]) -> str:
    with atomic_write(path) as file:
        np.savez(file, **arrays)
    return content_digest(read_file(path))


def read_npz(path: str | os.PathLike[str], digest: str | None = None) -> dict[str, np.ndarray]:
    """Return all arrays of an npz file; nothing in it is unpickled.

    Raises:
        UserError: It cannot be read, has not this digest, or would fill the memory when unpacked.
    """
    try:
        content = read_file(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    if digest is not None and content_digest(content) != digest:
        raise UserError(f"{path}: changed since results.json was written; do the run again")
    try:
        _check_size(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged zip file raises nearly anything
        raise UserError(f"{path}: not a readable npz file ({error})") from error


def _check_size(content: bytes) -> None:
    """Refuse a small file that unpacks to a large one, or has an array twice, by its directory."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
        names = archive.namelist()
    if len(set(names)) < len(names):
        raise ValueError("an array is given twice")
    if unpacked > max(SMALL, MOST_TIMES * len(content)):
        raise ValueError(f"{len(content):,} bytes that unpack to {unpacked:,}")
