"""All runs of an output directory as one table: a row per run, a column per setting and metric."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coop_cmp.errors import UserError
from coop_cmp.losses.names import TERMS, split_trainer
from coop_cmp.runs.records import RESULTS_FILE, read_results

if TYPE_CHECKING:
    import pandas as pd

LABELS = (
    "dataset",
    "trained_on",
    "trainer",
    "method",
    "term",
    "lambda",
    "form",
    "calibrator",
    "backbone",
    "shots",
    "classes",
    "split",
    "seed",
)
"""The columns that name a run for people; the settings behind them stand further right."""


def find_results(output: str | os.PathLike[str]) -> Iterator[Path]:
    """Every results file below a directory, in the order of their names."""
    for folder, subfolders, files in os.walk(output):
        subfolders.sort()
        if RESULTS_FILE in files:
            yield Path(folder, RESULTS_FILE)


def load(output: str | os.PathLike[str]) -> pd.DataFrame:
    """All complete runs below a directory.

    One row per run, indexed by its path below the directory: labels (:data:`LABELS`), digests,
    metrics as fractions, sizes, seconds, machine and versions (``seconds.total``), and every
    setting by its key (``OPTIM.LR``). What could not be read is left out and named in
    ``frame.attrs["problems"]``.

    Raises:
        UserError: There is no such directory.
    """
    if not Path(output).is_dir():
        raise UserError(f"{output}: there is no such directory")
    records: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    for path in find_results(output):
        try:
            records[str(path.parent)] = read_results(path)
        except UserError as error:
            problems.append(str(error))
    frame = make_frame(records.items())
    frame.index = frame.index.map(lambda folder: Path(folder).relative_to(output).as_posix())
    frame.index.name = "run"
    frame.attrs["problems"] = problems
    return frame


def make_frame(records: Iterable[tuple[str, Mapping[str, Any]]]) -> pd.DataFrame:
    """The frame of some records, given with the directories they are from."""
    import pandas as pd  # slow to load

    rows = {folder: row_of(folder, record) for folder, record in records}
    columns = dict.fromkeys([*LABELS, *(name for row in rows.values() for name in row)])
    frame = pd.DataFrame(
        list(rows.values()), list(rows), sorted(columns, key=is_setting), dtype=object
    )
    # Numbers become numbers, but a run without shots or lambda keeps None there, not NaN.
    return frame.infer_objects().assign(**{name: frame[name] for name in ("lambda", "shots")})


def row_of(folder: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """A run's record as a flat row."""
    settings, training = record["settings"], record["training"]
    method, term = split_trainer(settings["TRAINER.NAME"])
    node = f"TRAINER.{TERMS[term].node}" if term else ""
    shots = settings.get("DATASET.NUM_SHOTS", -1)
    trainable = bool(record["sizes"].get("trainable", 1))
    labels = {
        "dataset": settings["DATASET.NAME"],
        "trained_on": training["dataset"] if training else settings["DATASET.NAME"],
        "trainer": settings["TRAINER.NAME"],
        "method": method,
        "term": term or "",
        "lambda": settings.get(f"{node}.LAMBDA"),
        "form": settings.get(f"{node}.FORM") or "",
        "calibrator": settings.get("CALIBRATOR.NAME", ""),
        "backbone": settings["MODEL.BACKBONE.NAME"],
        "shots": shots if shots > 0 and trainable else None,
        "classes": settings.get("DATASET.SUBSAMPLE_CLASSES", "all"),
        "split": settings["TEST.SPLIT"],
        "seed": settings["SEED"],
    }
    row = {
        **labels,
        "trainable": trainable,
        "test_set": " ".join(str(labels[name]) for name in ("dataset", "classes", "split")),
        "directory": folder,
        # Runs of other weights are never averaged.
        "group": f"{record['group']} {record['weights'].get('digest')}",
        "pair": f"{record['pair']} {record['weights'].get('digest')}",
        "digest": record["digest"],
        "checkpoint": record["checkpoint"],
        "images": record["images"],
        "commit": record["commit"],
        "notes": "; ".join(map(str, record["notes"])),
        **record["metrics"],
    }
    for part in ("weights", "sizes", "seconds", "machine", "versions"):
        row |= {f"{part}.{name}": value for name, value in record[part].items()}
    return row | settings


def is_setting(column: str) -> bool:
    """Whether a column of the frame holds a setting, such as ``OPTIM.LR`` or ``SEED``."""
    return column.partition(".")[0].isupper()


def settings_text(row: Any, others: Iterable[Any]) -> str:
    """The settings of a row in which others differ from it, as ``KEY=VALUE, ...``."""
    keys = [key for key in row.index if is_setting(key) and key != "SEED"]
    telling = [key for key in keys if any(str(other[key]) != str(row[key]) for other in others)]
    weights = {str(other["weights.digest"]) for other in others} != {str(row["weights.digest"])}
    named = [f"weights={row['weights.name']}"] if weights else []
    return ", ".join([*(f"{key}={row[key]}" for key in telling), *named])
