"""Stored runs to calibrate, to fit on or to compare with, and calibrated runs beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.calibrate.storage import Calibrator, StoredCalibrator, write_calibrator
from coop_cmp.calibrate.temperature import Temperature
from coop_cmp.errors import UserError
from coop_cmp.runs.frame import find_results
from coop_cmp.runs.identity import CALIBRATOR, Identity, calibrated, claim
from coop_cmp.runs.records import (
    OUTCOMES_FILE,
    PREDICTIONS_FILE,
    RESULTS_FILE,
    Predictions,
    read_outcomes,
    read_predictions,
    read_results,
    write_outcomes,
    write_predictions,
    write_results,
)


@dataclass(frozen=True)
class StoredRun:
    """A finished run on disk."""

    folder: Path
    record: Mapping[str, Any]

    @classmethod
    def read(cls, folder: str | Path) -> StoredRun:
        """Read a run's record; what is not one is refused."""
        return cls(Path(folder), read_results(Path(folder, RESULTS_FILE)))

    @cached_property
    def predictions(self) -> Predictions:
        """Its logits and labels."""
        return read_predictions(self.folder / PREDICTIONS_FILE)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its settings by key."""
        return self.record["settings"]

    @property
    def split(self) -> str:
        """What it was tested on."""
        return self.settings["TEST.SPLIT"]

    @property
    def trained(self) -> str:
        """The digest of the run that learned what is tested here: of another or of itself."""
        training = self.record["training"]
        return training["digest"] if training else self.record["digest"]

    def shares(self, other: StoredRun, *keys: str) -> bool:
        """Whether these settings are the same in another run."""
        return all(self.settings.get(key) == other.settings.get(key) for key in keys)


@dataclass(frozen=True)
class Archive:
    """All finished runs below a directory that no calibrator has changed."""

    root: Path

    @cached_property
    def runs(self) -> list[StoredRun]:
        """Each of them; what cannot be read is left out."""
        return list(self._read())

    def _read(self) -> Iterator[StoredRun]:
        for path in find_results(self.root):
            try:
                run = StoredRun.read(path.parent)
            except UserError:
                continue
            if not any(key.startswith(CALIBRATOR) for key in run.settings):
                yield run

    def validation(self, run: StoredRun) -> list[StoredRun]:
        """The tests of the same trained model on its few-shot validation part."""
        return [r for r in self.runs if r.split == "val" and r.trained == run.trained]

    def folds(self, run: StoredRun) -> list[StoredRun]:
        """The runs that were trained like this one on parts of its shots, tested on the rest."""
        training = next((r for r in self.runs if r.record["digest"] == run.trained), run)
        free = ("DATASET.FOLD", "TEST.SPLIT")
        plain = {k: v for k, v in training.settings.items() if k not in free}
        return [
            r
            for r in self.runs
            if r.settings.get("DATASET.FOLD")
            and {k: v for k, v in r.settings.items() if k not in free} == plain
        ]

    def zero_shot(self, run: StoredRun, classes: str | None = None) -> list[StoredRun]:
        """The tests of zero-shot CLIP on the same images, or on other classes of the data set."""
        wanted = classes or run.settings.get("DATASET.SUBSAMPLE_CLASSES", "all")
        return [
            r
            for r in self.runs
            if r.settings["TRAINER.NAME"] == "ZeroshotCLIP"
            and r.settings.get("DATASET.SUBSAMPLE_CLASSES", "all") == wanted
            and r.shares(run, "DATASET.NAME", "MODEL.BACKBONE.NAME", "TEST.SPLIT")
            and r.record["weights"].get("digest") == run.record["weights"].get("digest")
        ]

    def training(self, run: StoredRun) -> list[StoredRun]:
        """The run that learned what is tested."""
        return [r for r in self.runs if r.record["digest"] == run.trained]


@dataclass(frozen=True)
class Calibrated:
    """What a calibrator has found for a run.

    Attributes:
        calibrator: What was found.
        name: Of the calibrator, in the frame and in paths.
        source: Where its labels are from; "none" if it needs none.
        labels: How many labels it took.
        numbers: What it found, such as a temperature.
        notes: The same for people.
        zero_shot: The test of zero-shot CLIP that it takes logits of.
    """

    calibrator: Calibrator
    name: str
    source: str
    labels: int = 0
    numbers: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    zero_shot: StoredRun | None = None


def store_calibrated(
    run: StoredRun, result: Calibrated, output: str | Path | None = None, redo: bool = False
) -> tuple[Path, dict[str, Any]]:
    """Write a calibrated run: its folder and its record.

    Args:
        run: The run that was calibrated.
        result: Its calibrator.
        output: The new run's folder; None for one beside the run, named after the calibrator.
        redo: Replace a run that is there.
    """
    from coop_cmp.metrics import Samples
    from coop_cmp.metrics.panel import TOP_LABEL, measure
    from coop_cmp.runs import circumstances
    from coop_cmp.runs.store import outcomes_of

    folder = Path(output) if output else beside(run.folder, result.name)
    if folder.resolve() == run.folder.resolve():
        raise UserError(f"--to {output} is the run itself; name another directory")
    identity = calibrated(Identity.from_record(run.record), result.name, result.source)
    predictions = run.predictions
    needed = [r.predictions.logits for r in (run, result.zero_shot) if r]
    logits = result.calibrator(*needed).astype(np.float32)
    claim(folder, identity, redo)
    samples = Samples(logits, predictions.labels, from_logits=True)
    bins = run.settings.get("TEST.N_BINS", 10), run.settings.get("TEST.BIN_CLOSED", "right")
    metrics = measure(samples, TOP_LABEL, *bins)
    known = {k: None if math.isnan(v) else v for k, v in metrics.items()}
    record = {
        **{key: value for key, value in run.record.items() if key != "schema"},
        **identity.as_record(),
        "metrics": {**known, **result.numbers},
        "sizes": {**run.record["sizes"], "labels": result.labels},
        "seconds": {"total": circumstances.seconds_since_start()},
        "versions": circumstances.versions(),
        "commit": circumstances.commit(),
        "notes": [*run.record["notes"], *result.notes],
    }
    outcomes = replace(
        outcomes_of(samples), images=read_outcomes(run.folder / OUTCOMES_FILE).images
    )
    write_predictions(folder / PREDICTIONS_FILE, logits, predictions.labels, predictions.classnames)
    write_outcomes(folder / OUTCOMES_FILE, outcomes)
    write_calibrator(folder, _for_run(run, result))
    write_results(folder / RESULTS_FILE, record)
    return folder, record


def _for_run(run: StoredRun, result: Calibrated) -> StoredCalibrator:
    """The calibrator with all that says which model it is for."""
    other = result.zero_shot
    by_class = other is None and not isinstance(result.calibrator, Temperature)
    return StoredCalibrator(
        result.calibrator,
        Identity.from_record(run.record),
        run.record["checkpoint"],
        run.predictions.classnames if by_class else None,
        Identity.from_record(other.record) if other else None,
        other.record["weights"].get("digest") if other else None,
    )


def in_a_sweep(folder: Path) -> bool:
    """Whether a run lies in ``<output>/<data set>/<trainer>/<setting>/seed1``, as sweeps put it."""
    return bool(re.fullmatch(r"seed\d+", folder.name)) and len(folder.parents) > 3


def beside(folder: Path, name: str) -> Path:
    """``.../GlyphCLIP_8shots_temperature/seed1`` for ``.../GlyphCLIP_8shots/seed1``.

    ``out_temperature`` for a run in a directory ``out`` of its own.
    """
    folder = folder.resolve()
    if not in_a_sweep(folder):
        return folder.with_name(f"{folder.name}_{name}")
    return folder.parent.with_name(f"{folder.parent.name}_{name}") / folder.name
