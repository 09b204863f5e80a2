"""Stored runs: found below directories, named for people, and paired with their CMP twins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.errors import UserError, closest
from coop_cmp.losses.names import TERMS
from coop_cmp.metrics import Samples
from coop_cmp.metrics.bins import Closed
from coop_cmp.runs import PREDICTIONS_FILE, Predictions, load, read_predictions
from coop_cmp.runs.compare import bins_of
from coop_cmp.runs.frame import is_setting
from coop_cmp.runs.run import DEFAULT_LAMBDA, shots_text

FREE_OVER = {
    "lambda": ("SEED", *(f"TRAINER.{term.node}.LAMBDA" for term in TERMS.values())),
    "shots": ("SEED", "DATASET.NUM_SHOTS", "OPTIM.MAX_EPOCH"),
    "classes": ("SEED", "DATASET.SUBSAMPLE_CLASSES"),
}
"""The settings that differ between the points of a curve, and between base and new classes."""


@dataclass(frozen=True)
class StoredRun:
    """One predictions file with its row in the frame of results.

    Attributes:
        path: The npz file.
        row: Labels, metrics and settings, or None where only predictions were stored.
        members: Runs that differ in their seed alone, whose predictions this one pools.
    """

    path: Path
    row: Mapping[str, Any] | None
    members: tuple[StoredRun, ...] = ()

    @cached_property
    def predictions(self) -> Predictions:
        if not self.members:
            return read_predictions(self.path)
        parts = [read_predictions(member.path) for member in self.members]
        for member, part in zip(self.members, parts, strict=True):
            if part.classnames != parts[0].classnames:
                raise UserError(f"{member.path}: its classes are not those of {self.path}")
        logits, labels = ([getattr(p, name) for p in parts] for name in ("logits", "labels"))
        return Predictions(np.concatenate(logits), np.concatenate(labels), parts[0].classnames)

    @cached_property
    def samples(self) -> Samples:
        try:
            return Samples(self.predictions.logits, self.predictions.labels, from_logits=True)
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from error

    @property
    def bins(self) -> tuple[int, Closed]:
        """The number of bins and the closed end of its metrics."""
        return bins_of(self.row or {})

    @property
    def method(self) -> str:
        """The trainer without its suffix, or the name of the file or of its folder."""
        if self.row is not None:
            return self.row["method"]
        return self.path.parent.name if self.path.name == PREDICTIONS_FILE else self.path.stem

    @property
    def penalty(self) -> float | None:
        """Lambda of a CMP twin, None for a baseline."""
        return self.row["lambda"] if self.row is not None and self.row["term"] == "CMP" else None

    @property
    def variant(self) -> str:
        """The method with its term and the term's form, the same for all weights."""
        if self.row is None or not (self.row["term"] or self.row["calibrator"]):
            return self.method
        parts = [self.method, self.row["term"], self.row["calibrator"]]
        form = "" if self.row["form"] in ("", "ratio") else f" ({self.row['form']})"
        return " + ".join(filter(None, parts)) + form

    @property
    def title(self) -> str:
        weight = self.row["lambda"] if self.row is not None else None
        return self.variant if weight is None else f"{self.variant}, λ = {weight:g}"

    @property
    def setting(self) -> tuple[str, ...]:
        """What a run and its baseline have in common, for people; the shots and the seed come last.

        Nothing for a file without a record.
        """
        row = self.row
        if row is None:
            return ()
        elsewhere = f"from {row['trained_on']}" if row["trained_on"] != row["dataset"] else "all"
        parts = (row["dataset"], elsewhere, row["classes"], row["split"], row["backbone"])
        named = [part for part in parts if part not in ("all", "test")]
        all_images = "all images" if row["trainable"] else "zero-shot"
        shots = shots_text(row["shots"]) if row["shots"] else all_images
        seeds = ", ".join(str(run.row["seed"]) for run in self.members if run.row is not None)
        return (*named, shots, f"seeds {seeds}" if seeds else f"seed {row['seed']}")

    def same_but(self, *keys: str) -> tuple[str, ...]:
        """All settings but some, the same for runs that differ in those alone.

        Args:
            keys: Beginnings of the settings that may differ.
        """
        if self.row is None:
            return (str(self.path),)
        kept = [k for k in self.row if is_setting(k) and not k.startswith(keys)]
        facts = (self.row["trained_on"], str(self.row.get("weights.digest")))
        return (*facts, *(f"{key}={self.row[key]}" for key in sorted(kept)))

    @property
    def heading(self) -> str:
        return ", ".join(self.setting)

    def level(self, over: str) -> float | None:
        """Lambda or shots; None without lambda, and without shots as zero-shot CLIP."""
        if self.row is None:
            return None
        return self.penalty if over == "lambda" else self.row["shots"]

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
    runs: dict[Path, StoredRun] = {}
    problems: list[str] = []
    for source in map(Path, sources):
        if not source.exists():
            raise UserError(f"{source}: there is no such file or directory")
        frame = load(source.parent if source.is_file() else source)
        rows = {row["directory"]: dict(row) for _, row in frame.iterrows()}
        broken = {
            str(Path(problem.partition(": ")[0]).parent) for problem in frame.attrs["problems"]
        }
        files = [source] if source.is_file() else sorted(source.rglob(PREDICTIONS_FILE))
        problems += frame.attrs["problems"]
        for path in files:
            if str(path.parent) not in broken:
                named = path.name == PREDICTIONS_FILE
                runs[path] = StoredRun(path, rows.get(str(path.parent)) if named else None)
    return list(runs.values()), list(dict.fromkeys(problems))


def pooled(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Runs that differ only in their seed as one, in the order in which they came."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        key = run.row["group"] if run.row is not None else str(run.path)
        groups.setdefault(key, []).append(run)
    return [
        group[0]
        if group[0].row is None or len(group) == 1
        else StoredRun(group[0].path, {**group[0].row, "seed": None}, tuple(group))
        for group in groups.values()
    ]


def paired(runs: list[StoredRun]) -> list[list[StoredRun]]:
    """Each baseline with one of its CMP twins, [baseline, twin]; what has no partner, alone.

    Pooled runs are paired whatever their seeds, others by theirs. Of several twins the one with the
    default lambda is taken, or else the smallest. Two files
    without records are a pair as well, for whoever gives just two means to compare them.
    """
    if len(runs) == 2 and all(run.row is None for run in runs):
        return [runs]
    twins: dict[Any, list[StoredRun]] = {}
    for run in runs:
        if run.row is not None and run.penalty is not None:
            twins.setdefault((run.row["pair"], run.row["seed"]), []).append(run)
    groups = []
    for run in runs:
        if run.penalty is None:
            plain = run.row is not None and not run.row["term"] and not run.row["calibrator"]
            key = (run.row["pair"], run.row["seed"]) if plain and run.row is not None else None
            groups.append([run, *sorted(twins.pop(key, []), key=_preference)[:1]])
    return groups + [[min(rest, key=_preference)] for rest in twins.values()]


def _preference(run: StoredRun) -> tuple[bool, bool, float]:
    form = run.row["form"] if run.row is not None else ""
    return form != "ratio", run.penalty != DEFAULT_LAMBDA, run.penalty or 0.0
