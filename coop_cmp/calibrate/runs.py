"""Stored runs to calibrate, to fit on or to compare with, and calibrated runs beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.calibrate.storage import Calibrator, StoredCalibrator, write_calibrator
from coop_cmp.calibrate.temperature import Temperature
from coop_cmp.errors import UserError
from coop_cmp.runs.frame import find_runs
from coop_cmp.runs.identity import CALIBRATOR, calibrated, claim
from coop_cmp.runs.stored import StoredRun


@dataclass(frozen=True)
class Archive:
    """All finished runs below a directory that no calibrator has changed.

    Attributes:
        fit: Runs with the labels to fit on, in place of those that are there.
        clip: The test of zero-shot CLIP on the same images, likewise.
    """

    root: Path
    fit: Sequence[StoredRun] = ()
    clip: StoredRun | None = None

    @cached_property
    def runs(self) -> list[StoredRun]:
        """Each of them; what cannot be read is left out."""
        found, _ = find_runs(self.root)
        return [r for r in found if not any(key.startswith(CALIBRATOR) for key in r.settings)]

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
        if self.clip and not classes:
            return [self.clip]
        wanted = classes or run.settings.get("DATASET.SUBSAMPLE_CLASSES", "all")
        return [
            r
            for r in self.runs
            if r.settings["TRAINER.NAME"] == "ZeroshotCLIP"
            and r.settings.get("DATASET.SUBSAMPLE_CLASSES", "all") == wanted
            and r.shares(run, "DATASET.NAME", "DATASET.TITLE", "DATASET.CONTENT")
            and r.shares(run, "MODEL.BACKBONE.NAME", "TEST.SPLIT")
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
        note: What it found, for people.
        numbers: The same by name, such as a temperature.
        zero_shot: The test of zero-shot CLIP that it takes logits of.
    """

    calibrator: Calibrator
    name: str
    source: str
    note: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    zero_shot: StoredRun | None = None

    @property
    def labels(self) -> int:
        """How many labels it took."""
        return getattr(self.calibrator, "labels", 0)


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
    from coop_cmp.metrics.panel import measure
    from coop_cmp.metrics.samples import Samples
    from coop_cmp.runs.store import store

    folder = Path(output) if output else beside(run.folder, result.name)
    if folder.resolve() == run.folder.resolve():
        raise UserError(f"--to {output} is the run itself; name another directory")
    identity = calibrated(run.identity, result.name, result.source)
    needed = [r.predictions.logits for r in (run, result.zero_shot) if r]
    logits = result.calibrator(*needed).astype(np.float32)
    samples = Samples(logits, run.predictions.labels, from_logits=True)
    claim(folder, identity, redo)
    other = result.zero_shot
    by_class = other is None and not isinstance(result.calibrator, Temperature)
    names, images = run.predictions.classnames, run.outcomes.images
    stored = StoredCalibrator(
        result.calibrator,
        run.identity,
        run.record["checkpoint"],
        names if by_class else None,
        other.identity if other else None,
        other.record["weights"].get("digest") if other else None,
    )
    write_calibrator(folder, stored)
    record = {
        **{key: value for key, value in run.record.items() if key != "seconds"},
        **identity.as_record(),
        "metrics": {**measure(samples, None, *run.bins), **result.numbers},
        "sizes": {**run.record["sizes"], "labels": result.labels},
        "notes": [*run.record["notes"], result.note],
    }
    return folder, store(folder, record, samples, names, images)


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
