"""The record of a run, ``results.json``: its identity, its metrics and the circumstances.

It holds digests of the files beside it and of itself: what was changed afterwards is refused.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from coop_cmp.errors import UserError
from coop_cmp.files import read_file, write_json
from coop_cmp.metrics.records import METRICS
from coop_cmp.runs.identity import Identity
from coop_cmp.runs.outputs import content_digest

SCHEMA = 2
RESULTS_FILE = "results.json"

FIELDS: dict[str, Any] = {
    "schema": int,
    "settings": dict,
    "training": dict | None,
    "epoch": int | None,
    "digest": str,
    "weights": dict,
    "checkpoint": str | None,
    "images": str | None,
    "labels": str,  # digest of the test's labels and class names
    "metrics": dict,
    "sizes": dict,
    "fit": dict,
    "seconds": dict,
    "machine": dict,
    "versions": dict,
    "commit": str | None,
    "notes": list,
    "files": dict,  # digests of the files beside it, by name
    "checksum": str,  # digest of all other fields
}
REQUIRED_METRICS = ("accuracy", "ece", "ace", "mce", "weighted_mce", "nll")
REQUIRED = (*(f"metrics.{name}" for name in REQUIRED_METRICS), "seconds.total", "sizes.test")
SLACK = 1e-3  # of a metric's bounds: rounding may carry a value just past them
# These identify a run for people.
LABELS = ("TRAINER.NAME", "DATASET.NAME", "MODEL.BACKBONE.NAME", "SEED", "TEST.SPLIT")


def write_results(path: str | os.PathLike[str], record: dict[str, Any]) -> None:
    """Write a run's record, with its schema and checksum, to ``path``; refuse a wrong one."""
    record = {"schema": SCHEMA, **record}
    record["checksum"] = _checksum(record)
    _check(record, path)
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
    _check(record, path)
    return record


def refuse_other_model(directory: str | os.PathLike[str], checkpoint: str | None) -> None:
    """Raise UserError if a directory holds the results of another model than this."""
    path = Path(directory, RESULTS_FILE)
    if path.exists() and read_results(path)["checkpoint"] != checkpoint:
        raise UserError(
            f'"{directory}" holds the test of another model; choose another --output-dir, or '
            "--redo to replace it"
        )


def _checksum(record: dict[str, Any]) -> str:
    """The digest of all fields but itself, as they are read back."""
    said = {name: value for name, value in record.items() if name != "checksum"}
    return content_digest(json.dumps(json.loads(json.dumps(said)), sort_keys=True).encode())


def _check(record: Any, path: str | os.PathLike[str]) -> None:
    try:
        _check_fields(record)
        Identity.from_record(record)
        _check_numbers(record)
        if record["checksum"] != _checksum(record):
            raise ValueError("its numbers are not those that were written; they were changed")
    except (ValueError, OverflowError) as error:
        raise UserError(f"{path}: {error}") from error


def _check_fields(record: Any) -> None:
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {type(record).__name__}")
    if record.get("schema", SCHEMA) != SCHEMA:
        raise ValueError(
            f"schema {record['schema']!r} is unknown, this version reads {SCHEMA}; do the run "
            "again (--redo)"
        )
    for name in sorted(record.keys() ^ FIELDS.keys()):
        raise ValueError(f"the field {name!r} is {'unknown' if name in record else 'missing'}")
    for name, kind in FIELDS.items():
        if not isinstance(record[name], kind) or isinstance(record[name], bool):
            raise ValueError(f"the field {name!r} has the wrong type: {record[name]!r}")
    for key in LABELS:
        if key not in record["settings"]:
            raise ValueError(f"the setting {key} is missing")


def _check_numbers(record: dict[str, Any]) -> None:
    is_sigmoid = record["settings"].get("MODEL.SCORES") == "sigmoid"
    numbers = {
        f"{group}.{name}": value
        for group in ("metrics", "sizes", "seconds")
        for name, value in record[group].items()
    }
    for name in REQUIRED:
        if name not in numbers:
            raise ValueError(f"{name} is missing")
    for name, value in numbers.items():
        metric = METRICS.get(name.removeprefix("metrics."))
        may_lack = metric and (name not in REQUIRED or (is_sigmoid and metric.distribution))
        if value is None and may_lack:
            continue  # undefined, as an AUROC without a wrong prediction
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is not a number: {value!r}")
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
        # A value in percent would spoil a table.
        if metric and not metric.bounds[0] - SLACK <= value <= metric.bounds[1] + SLACK:
            low, high = metric.bounds
            raise ValueError(f"{name} is {value}, not from {low:g} to {high:g}")
