"""What a run leaves behind, written and read safely.

``results.json`` holds its identity, its metrics and the circumstances; ``outcomes.npz`` what the
model said about each image in a few numbers, for tables, intervals and most figures;
``predictions.npz`` all logits. The record holds digests of the other two and of itself: a file that
was changed afterwards is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write, read_file, write_json
from coop_cmp.metrics.records import METRICS
from coop_cmp.runs.identity import Identity

if TYPE_CHECKING:
    from coop_cmp.metrics.samples import Samples, Scores

SCHEMA = 2
RESULTS_FILE = "results.json"
PREDICTIONS_FILE = "predictions.npz"
OUTCOMES_FILE = "outcomes.npz"

FIELDS: dict[str, tuple[type, ...]] = {
    "settings": (dict,),
    "training": (dict, type(None)),
    "digest": (str,),
    "group": (str,),
    "pair": (str,),
    "weights": (dict,),
    "checkpoint": (str, type(None)),
    "images": (str, type(None)),
    "metrics": (dict,),
    "sizes": (dict,),
    "fit": (dict,),
    "seconds": (dict,),
    "machine": (dict,),
    "versions": (dict,),
    "commit": (str, type(None)),
    "notes": (list,),
}
OPTIONAL: dict[str, tuple[type, ...]] = {
    "files": (dict,),  # digests of the files beside it, by name
    "labels": (str,),  # digest of the test's labels and class names
    "checksum": (str,),  # digest of all other fields
}
"""What records of earlier versions lack."""
REQUIRED_METRICS = ("accuracy", "ece", "ace", "mce", "weighted_mce", "nll")
REQUIRED = (*(f"metrics.{name}" for name in REQUIRED_METRICS), "seconds.total", "sizes.test")
SMALL = 2**28  # bytes unpacked that any npz file may have; beyond, MOST_TIMES its own size
MOST_TIMES = 20
SLACK = 1e-3  # of a metric's bounds: rounding may carry a value just past them
# These identify a run for people.
LABELS = ("TRAINER.NAME", "DATASET.NAME", "MODEL.BACKBONE.NAME", "SEED", "TEST.SPLIT")


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

    @property
    def correct(self) -> np.ndarray:
        """1.0 where the prediction was right, else 0.0 [N]."""
        return (self.predicted == self.labels).astype(np.float64)

    def samples(self) -> Samples:
        """Return them to be measured, by metrics that need no other class's probability."""
        from coop_cmp.metrics.samples import Samples

        return Samples.from_outcomes(self.labels, self.predicted, self.confidence, self.nll)


_OUTCOME_TYPES = {
    "images": np.uint64,
    "labels": np.int32,
    "predicted": np.int32,
    "confidence": np.float64,
    "nll": np.float64,
}


def image_numbers(names: Sequence[str]) -> np.ndarray:
    """Return an ID for each image, a hash of its name, so that test sets can share images [N]."""
    digests = [_image_number(name) for name in names]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _image_number(name: str) -> bytes:
    return hashlib.blake2b(os.fsencode(name), digest_size=8).digest()


def labels_digest(labels: Any, classnames: Sequence[str]) -> str:
    """A digest of the labels of a test set in their order, and of the names of its classes."""
    text = json.dumps([np.asarray(labels).tolist(), list(classnames)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def images_digest(images: np.ndarray) -> str:
    """A digest of the images of a test set in their order."""
    return hashlib.sha256(images.astype("<u8").tobytes()).hexdigest()[:16]


def write_results(path: str | os.PathLike[str], record: dict[str, Any]) -> None:
    """Write a run's record, without its schema number, to ``path``; a wrong record is refused."""
    record = {"schema": SCHEMA, **record}
    record["checksum"] = _checksum(record)
    _check(record, str(path))
    write_json(path, record)


def read_results(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a run's record.

    Raises:
        UserError: If the file is not a complete record of the known schema with finite numbers;
            the message begins with the path.
    """
    try:
        record = json.loads(read_file(path).decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a JSON file ({error}); run it again") from error
    _check(record, str(path))
    return record


def refuse_other_model(directory: str | os.PathLike[str], checkpoint: str | None) -> None:
    """Raise UserError if a directory holds the results of another model than this."""
    path = Path(directory, RESULTS_FILE)
    if path.exists() and read_results(path)["checkpoint"] != checkpoint:
        raise UserError(
            f'"{directory}" holds the test of another model; choose another --output-dir, or '
            "--redo to replace it"
        )


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
    }
    if text_features is not None:
        arrays["text_features"] = np.asarray(text_features, dtype=np.float32)
    if scores != "softmax":
        arrays["scores"] = np.asarray(scores)
    return _write_npz(path, arrays)


def read_predictions(path: str | os.PathLike[str], digest: str | None = None) -> Predictions:
    """Read what :func:`write_predictions` wrote; anything else is refused with the path.

    Args:
        digest: What the record says of the file, if anything.
    """
    arrays = read_npz(path, digest)
    missing = [name for name in ("logits", "labels", "classnames") if name not in arrays]
    if missing:
        raise UserError(f"{path}: {', '.join(missing)} missing; not a run's predictions")
    logits, labels, classnames = arrays["logits"], arrays["labels"], arrays["classnames"]
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or len(classnames) != logits.shape[1]:
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
    return _write_npz(path, {k: getattr(outcomes, k).astype(t) for k, t in _OUTCOME_TYPES.items()})


def read_outcomes(path: str | os.PathLike[str], digest: str | None = None) -> Outcomes:
    """Read what :func:`write_outcomes` wrote; anything else is refused with the path.

    Args:
        digest: What the record says of the file, if anything.
    """
    arrays = read_npz(path, digest)
    sizes = {arrays[name].shape for name in _OUTCOME_TYPES if name in arrays}
    right = [arrays[k].dtype == t for k, t in _OUTCOME_TYPES.items() if k in arrays]
    if len(right) < len(_OUTCOME_TYPES) or not all(right) or len(sizes) > 1:
        raise UserError(f"{path}: not the outcomes of a run; do the run again")
    outcomes = Outcomes(**{name: arrays[name] for name in _OUTCOME_TYPES})
    if outcomes.labels.ndim != 1 or not outcomes.labels.size:
        raise UserError(f"{path}: not the outcomes of a run, without any image; do the run again")
    for name, most in (("labels", np.inf), ("predicted", np.inf), ("confidence", 1), ("nll", 1e9)):
        values = arrays[name]
        if name == "nll" and np.isnan(values).all():
            continue
        if not (values.min() >= 0 and values.max() <= most):  # nor NaN
            raise UserError(f"{path}: {name} is out of range; do the run again")
    return outcomes


def _write_npz(path: str | os.PathLike[str], arrays: dict[str, Any]) -> str:
    with atomic_write(path) as file:
        np.savez(file, **arrays)
    return _digest(read_file(path))


def read_npz(path: str | os.PathLike[str], digest: str | None = None) -> dict[str, np.ndarray]:
    """All arrays of an npz file; nothing in it is unpickled.

    Args:
        digest: Of the file, if it is known.

    Raises:
        UserError: It cannot be read, is another file, or would fill the memory when unpacked.
    """
    try:
        content = read_file(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    if digest is not None and _digest(content) != digest:
        raise UserError(f"{path}: changed since {RESULTS_FILE} was written; do the run again")
    try:
        _check_size(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged zip file raises nearly anything
        raise UserError(f"{path}: not a readable npz file ({error})") from error


def _check_size(content: bytes) -> None:
    """Refuse a small file that unpacks to a large one, by the sizes in its directory."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > max(SMALL, MOST_TIMES * len(content)):
        raise ValueError(f"{len(content):,} bytes that unpack to {unpacked:,}")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _checksum(record: dict[str, Any]) -> str:
    """The digest of all fields but itself, as they are read back."""
    said = {name: value for name, value in record.items() if name != "checksum"}
    text = json.dumps(json.loads(json.dumps(said)), sort_keys=True)
    return _digest(text.encode())


def _check(record: Any, path: str) -> None:
    if not isinstance(record, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(record).__name__}")
    if record.get("schema") == 1:
        raise UserError(
            f"{path}: schema 1 does not tell the settings of its run; do the run again (--redo)"
        )
    if record.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: schema {record.get('schema')!r} is unknown, this version reads {SCHEMA}"
        )
    if unknown := record.keys() - {"schema", *FIELDS, *OPTIONAL}:
        raise UserError(f"{path}: the field {min(unknown)!r} is unknown")
    for name, types in (FIELDS | OPTIONAL).items():
        if name not in record and name in OPTIONAL:
            continue
        if name not in record:
            raise UserError(f"{path}: the field {name!r} is missing")
        value = record[name]
        if not isinstance(value, types) or isinstance(value, bool):
            raise UserError(f"{path}: the field {name!r} has the wrong type: {value!r}")
    for key in LABELS:
        if key not in record["settings"]:
            raise UserError(f"{path}: the setting {key} is missing")
    try:
        Identity.from_record(record)
        _check_numbers(record, path)
        if record.get("checksum", _checksum(record)) != _checksum(record):
            raise ValueError("its numbers are not those that were written; they were changed")
    except (ValueError, OverflowError) as error:
        words = str(error) if isinstance(error, UserError) else f"{path}: {error}"
        raise UserError(words) from error


def _check_numbers(record: dict[str, Any], path: str) -> None:
    sigmoid = record["settings"].get("MODEL.SCORES") == "sigmoid"
    numbers: dict[str, Any] = {}
    for group in ("metrics", "sizes", "seconds"):
        numbers.update({f"{group}.{name}": value for name, value in record[group].items()})
    for name in REQUIRED:
        if name not in numbers:
            raise UserError(f"{path}: {name} is missing")
    for name, value in numbers.items():
        metric = METRICS.get(name.removeprefix("metrics."))
        free = metric and (name not in REQUIRED or (sigmoid and metric.distribution))
        if value is None and free:
            continue  # undefined, as an AUROC without a wrong prediction
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{path}: {name} is not a number: {value!r}")
        if not math.isfinite(value):
            raise UserError(f"{path}: {name} is {value}")
        # A value in percent would spoil a table.
        if metric and not metric.bounds[0] - SLACK <= value <= metric.bounds[1] + SLACK:
            low, high = metric.bounds
            raise UserError(f"{path}: {name} is {value}, not from {low:g} to {high:g}")
