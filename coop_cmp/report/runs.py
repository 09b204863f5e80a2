"""Stored runs: found below directories, named for people, and paired with their CMP twins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coop_cmp.errors import UserError, closest
from coop_cmp.metrics import Samples
from coop_cmp.results import (
    PREDICTIONS_FILE,
    RESULTS_FILE,
    Predictions,
    read_predictions,
    read_results,
)
from coop_cmp.sweep.grid import DEFAULT_LAMBDA, shots_text


@dataclass(frozen=True)
class StoredRun:
    """One predictions file with the record beside it.

    Attributes:
        path: The npz file.
        record: What results.json says, or None where only predictions were stored.
    """

    path: Path
    record: dict[str, Any] | None

    @cached_property
    def predictions(self) -> Predictions:
        return read_predictions(self.path)

    @cached_property
    def samples(self) -> Samples:
        try:
            return Samples(self.predictions.logits, self.predictions.labels, from_logits=True)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from error

    @property
    def method(self) -> str:
        """The trainer without its suffix, or the name of the file or of its folder."""
        if self.record:
            return self.record["trainer"].removesuffix("_CMP")
        return self.path.parent.name if self.path.name == PREDICTIONS_FILE else self.path.stem

    @property
    def penalty(self) -> float | None:
        """Lambda of a CMP twin, None for a baseline."""
        return self.record["lambda"] if self.record else None

    @property
    def variant(self) -> str:
        """The method with the form of its penalty, the same for all lambdas."""
        if self.penalty is None or self.record is None:
            return self.method
        form = "" if self.record["form"] == "ratio" else f" ({self.record['form']})"
        return f"{self.method} + CMP{form}"

    @property
    def title(self) -> str:
        return self.variant if self.penalty is None else f"{self.variant}, λ = {self.penalty:g}"

    @property
    def setting(self) -> tuple[str, ...]:
        """What a run and its baseline have in common; the shots and the seed come last.

        Nothing for a file without a record.
        """
        record = self.record
        if record is None:
            return ()
        parts = (record["dataset"], record["subsample"], record["split"], record["backbone"])
        named = [part for part in parts if part not in ("all", "test")]
        all_images = "zero-shot" if record["sizes"].get("trainable") == 0 else "all images"
        shots = shots_text(record["shots"]) if record["shots"] > 0 else all_images
        return (*named, shots, f"seed {record['seed']}")

    @property
    def heading(self) -> str:
        return ", ".join(self.setting)

    def level(self, over: str) -> float | None:
        """Lambda or shots; None without lambda, and without shots as zero-shot CLIP."""
        value = self.record[over] if self.record else None
        return None if over == "shots" and value is not None and value < 1 else value

    def class_index(self, wanted: str) -> int:
        """The index of a class given by its name or number."""
        names = self.predictions.classnames
        if wanted in names:
            return names.index(wanted)
        if wanted.isdecimal() and int(wanted) < len(names):
            return int(wanted)
        hint = closest(wanted, names)
        raise UserError(f'--class: there is no class "{wanted}" among {len(names)}{hint}')


def file_stem(*parts: str) -> str:
    """Parts joined to a file name without spaces or slashes."""
    return "_".join(re.sub(r"[^\w.+-]+", "-", part.replace(" ", "")) for part in parts)


def find_runs(sources: Iterable[str]) -> tuple[list[StoredRun], list[str]]:
    """The runs below the sources (directories or npz files), and what was wrong with others."""
    runs, problems = {}, []
    for source in map(Path, sources):
        if not source.exists():
            raise UserError(f"{source}: there is no such file or directory")
        files = [source] if source.is_file() else sorted(source.rglob(PREDICTIONS_FILE))
        for path in files:
            results = path.with_name(RESULTS_FILE)
            try:
                runs[path] = StoredRun(path, read_results(results) if results.exists() else None)
            except UserError as error:
                problems.append(str(error))
    return list(runs.values()), problems


def paired(runs: list[StoredRun]) -> list[list[StoredRun]]:
    """Each baseline with one of its twins, [baseline, twin]; whatever has no partner, alone.

    Of several twins the one with the default lambda is taken, or else the smallest. Two files
    without records are a pair as well, for whoever gives just two means to compare them.
    """
    if len(runs) == 2 and all(run.record is None for run in runs):
        return [runs]
    twins: dict[Any, list[StoredRun]] = {}
    for run in runs:
        if run.penalty is not None:
            twins.setdefault((run.method, run.setting), []).append(run)
    groups = []
    for run in runs:
        if run.penalty is None:
            candidates = twins.pop((run.method, run.setting), [])
            groups.append([run, *sorted(candidates, key=_preference)[:1]])
    return groups + [[min(rest, key=_preference)] for rest in twins.values()]


def _preference(run: StoredRun) -> tuple[bool, bool, float]:
    record = run.record or {}
    return record["form"] != "ratio", run.penalty != DEFAULT_LAMBDA, run.penalty or 0.0
