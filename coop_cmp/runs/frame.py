"""All runs of an output directory as one table: a row per run, a column per setting and metric."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coop_cmp.errors import UserError
from coop_cmp.losses.names import TERMS, split_trainer
from coop_cmp.runs.notes import add_notes
from coop_cmp.runs.records import RESULTS_FILE
from coop_cmp.runs.stored import StoredRun

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
"""The columns that name a run for people; the settings are further right."""


def find_runs(
    output: str | os.PathLike[str], predictions: bool = False
) -> tuple[list[StoredRun], list[str]]:
    """Find all complete runs below a directory, and say what could not be read.

    Args:
        predictions: Leave out runs whose predictions cannot be read as well.
    """
    if not Path(output).is_dir():
        raise UserError(f"{output}: there is no such directory")
    runs: list[StoredRun] = []
    problems: list[str] = []
    for path in sorted(Path(output).rglob(RESULTS_FILE)):
        try:
            run = StoredRun.of(path.parent)
            run.check(predictions)
            runs.append(run)
        except UserError as error:
            problems.append(str(error))
    return runs, problems


def load(output: str | os.PathLike[str]) -> pd.DataFrame:
    """Return all complete runs below a directory as a table.

    One row per run, indexed by its path below the directory: names for people, digests, metrics as
    fractions, sizes, seconds, machine and versions (``seconds.total``), and every setting by its
    key (``OPTIM.LR``). What could not be read is left out and named in ``frame.attrs["problems"]``.
    """
    runs, problems = find_runs(output)
    frame = make_frame(runs)
    frame.index = frame.index.map(lambda folder: Path(folder).relative_to(output).as_posix())
    frame.index.name = "run"
    frame.attrs["problems"] = problems
    return frame


def make_frame(runs: Iterable[StoredRun]) -> pd.DataFrame:
    """Return the frame of some runs, indexed by their directories."""
    import pandas as pd  # slow to load

    rows = {str(run.folder): row_of(run) for run in runs}
    add_notes(list(rows.values()))
    columns = dict.fromkeys([*LABELS, *(name for row in rows.values() for name in row)])
    frame = pd.DataFrame(
        list(rows.values()), list(rows), sorted(columns, key=is_setting), dtype=object
    )
    # Numbers become numbers, but a run without shots or lambda keeps None there, not NaN.
    return frame.infer_objects().assign(**{name: frame[name] for name in ("lambda", "shots")})


def row_of(run: StoredRun) -> dict[str, Any]:
    """Return a run as a flat row: names for people, digests, metrics, settings, circumstances."""
    record, settings, identity = run.record, run.settings, run.identity
    method, term = split_trainer(settings["TRAINER.NAME"])
    node = f"TRAINER.{TERMS[term].node}" if term else ""
    shots = settings.get("DATASET.NUM_SHOTS", -1)
    trainable = bool(record["sizes"].get("trainable", 1))
    weights, split = record["weights"].get("digest"), settings["TEST.SPLIT"]
    tested = (record["images"], record["labels"]) if split == "test" else ""
    labels = {
        "dataset": identity.dataset,
        "trained_on": (identity.training or identity).dataset,
        "trainer": settings["TRAINER.NAME"],
        "method": method,
        "term": term or "",
        "lambda": settings.get(f"{node}.LAMBDA"),
        "form": settings.get(f"{node}.FORM") or "",
        "calibrator": settings.get("CALIBRATOR.NAME", ""),
        "backbone": settings["MODEL.BACKBONE.NAME"],
        "shots": shots if shots > 0 and trainable else None,
        "classes": settings.get("DATASET.SUBSAMPLE_CLASSES", "all"),
        "split": split,
        "seed": settings["SEED"],
    }
    row = {
        **labels,
        "trainable": trainable,
        "test_set": " ".join(str(labels[name]) for name in ("dataset", "classes", "split")),
        "directory": str(run.folder),
        # Runs of other weights are never averaged or paired. Nor are tests on other images averaged
        # (the few-shot validation images are drawn by the seed); a pair of them says so.
        "group": f"{identity.group} {weights} {tested}",
        "pair": f"{identity.pair} {weights} {record['labels']}",
        **{key: record[key] for key in ("digest", "checkpoint", "images", "labels", "commit")},
        "notes": "; ".join(str(note).replace("; ", ", ") for note in record["notes"]),
        **run.metrics(),
    }
    for part in ("weights", "sizes", "fit", "seconds", "machine", "versions"):
        found = record[part].items()
        row |= {f"{part}.{name}": value for name, value in found if not isinstance(value, dict)}
    return row | dict(settings)


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
