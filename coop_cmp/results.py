"""What a run leaves behind: ``results.json`` and ``predictions.npz``, written and read safely."""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write, write_json

SCHEMA = 1
RESULTS_FILE = "results.json"
PREDICTIONS_FILE = "predictions.npz"

FIELDS: dict[str, tuple[type, ...]] = {
    "trainer": (str,),
    "dataset": (str,),
    "backbone": (str,),
    "weights": (str,),
    "shots": (int,),
    "seed": (int,),
    "subsample": (str,),
    "lambda": (float, int, type(None)),
    "form": (str, type(None)),
    "split": (str,),
    "metrics": (dict,),
    "bins": (dict,),
    "sizes": (dict,),
    "seconds": (dict,),
    "versions": (dict,),
    "notes": (list,),
}
REQUIRED_METRICS = ("accuracy", "ece", "ace", "mce", "weighted_mce", "nll")
# The only number that may be undefined: it compares correct with wrong predictions.
OPTIONAL = ("metrics.auroc",)
# Read in percent by mistake they would spoil a table. Rounding may carry them just past 1.
SHARES = tuple(f"metrics.{name}" for name in REQUIRED_METRICS if name != "nll")


@dataclass(frozen=True)
class Predictions:
    """The test outputs of a run.

    Attributes:
        logits: float32 [N, C].
        labels: int64 [N].
        classnames: The C names.
    """

    logits: np.ndarray
    labels: np.ndarray
    classnames: list[str]


def write_results(path: str | os.PathLike[str], record: dict[str, Any]) -> None:
    """Write a run's record, without its schema number, to ``path``; a wrong record is refused."""
    record = {"schema": SCHEMA, **record}
    _check(record, str(path))
    write_json(path, record)


def read_results(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a run's record.

    Raises:
        UserError: If the file is not a complete record of the known schema with finite numbers;
            the message begins with the path.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path}: not a JSON file ({error}); run it again") from error
    _check(record, str(path))
    return record


def write_predictions(
    path: str | os.PathLike[str], logits: Any, labels: Any, classnames: list[str]
) -> None:
    """Write logits [N, C], labels [N] and the C class names as an npz file."""
    with atomic_write(path) as file:
        np.savez(
            file,
            logits=np.asarray(logits, dtype=np.float32),
            labels=np.asarray(labels, dtype=np.int64),
            classnames=np.asarray(classnames, dtype=np.str_),
        )


def read_predictions(path: str | os.PathLike[str]) -> Predictions:
    """Read what :func:`write_predictions` wrote; anything else is refused with the path."""
    arrays = read_npz(path)
    missing = [name for name in ("logits", "labels", "classnames") if name not in arrays]
    if missing:
        raise UserError(f"{path}: {', '.join(missing)} missing; not a run's predictions")
    logits, labels, classnames = arrays["logits"], arrays["labels"], arrays["classnames"]
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or len(classnames) != logits.shape[1]:
        raise UserError(
            f"{path}: expected logits [N, C], labels [N] and classnames [C], got "
            f"{logits.shape}, {labels.shape} and {classnames.shape}"
        )
    return Predictions(logits, labels, [str(name) for name in classnames])


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All arrays of an npz file; nothing in it is unpickled."""
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise ValueError("it holds a single array")
        with file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: not a readable npz file ({error})") from error


def _check(record: Any, path: str) -> None:
    if not isinstance(record, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(record).__name__}")
    if record.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: schema {record.get('schema')!r} is unknown, this version reads {SCHEMA}"
        )
    for name, types in FIELDS.items():
        if name not in record:
            raise UserError(f"{path}: the field {name!r} is missing")
        value = record[name]
        if not isinstance(value, types) or isinstance(value, bool):
            raise UserError(f"{path}: the field {name!r} has the wrong type: {value!r}")
    metrics = record["metrics"]
    for name in REQUIRED_METRICS:
        if name not in metrics:
            raise UserError(f"{path}: the metric {name!r} is missing")
    _check_numbers(record, path)


def _check_numbers(record: dict[str, Any], path: str) -> None:
    numbers = {} if record["lambda"] is None else {"lambda": record["lambda"]}
    for group in ("metrics", "sizes", "seconds"):
        numbers.update({f"{group}.{name}": value for name, value in record[group].items()})
    for name, value in numbers.items():
        if value is None and name in OPTIONAL:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"{path}: {name} is not a number: {value!r}")
        if not math.isfinite(value):
            raise UserError(f"{path}: {name} is {value}")
        if name in SHARES and not 0 <= value <= 1.001:
            raise UserError(f"{path}: {name} is {value}, not a share from 0 to 1")
