"""Runs that differ in their seed alone, shown as one: named for people, pooled and paired."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.errors import UserError, closest
from coop_cmp.losses.names import TERMS
from coop_cmp.metrics import Samples
from coop_cmp.metrics.bins import Closed
from coop_cmp.runs.frame import find_runs, is_setting, row_of
from coop_cmp.runs.outputs import PREDICTIONS_FILE, Predictions
from coop_cmp.runs.pairs import Baselines
from coop_cmp.runs.run import DEFAULT_LAMBDA, shots_text
from coop_cmp.runs.stored import StoredRun

# Colour-blind safe; the page and the figures give a method the same one.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999999"]
FREE_OVER = {
    "lambda": ("SEED", *(f"TRAINER.{term.node}.LAMBDA" for term in TERMS.values())),
    "shots": ("SEED", "DATASET.NUM_SHOTS", "OPTIM.MAX_EPOCH"),
    "classes": ("SEED", "DATASET.SUBSAMPLE_CLASSES"),
}
"""The settings that differ between the points of a curve, and between base and new classes."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in their seed alone, in its order; or one file without a record."""

    runs: Sequence[StoredRun]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The runs' rows of the frame; none for a file without a record."""
        return [row_of(run) for run in self.runs if run.record]

    @property
    def row(self) -> Mapping[str, Any]:
        """The first run's row, the same for the others but for seed and numbers."""
        return self.rows[0] if self.rows else {}

    @property
    def path(self) -> Path:
        """The predictions of the first run."""
        return self.runs[0].path

    @property
    def bins(self) -> tuple[int, Closed]:
        """The number of bins and the closed end of its metrics."""
        return self.runs[0].bins

    @cached_property
    def predictions(self) -> Predictions:
        """The predictions of all runs, one after the other."""
        parts = [run.predictions for run in self.runs]
        for run, part in zip(self.runs, parts, strict=True):
            if part.classnames != parts[0].classnames:
                raise UserError(f"{run.path}: its classes are not those of {self.path}")
        logits, labels = ([getattr(p, name) for p in parts] for name in ("logits", "labels"))
        arrays = {"logits": np.concatenate(logits), "labels": np.concatenate(labels)}
        return replace(parts[0], **arrays, text_features=None)

    @cached_property
    def samples(self) -> Samples:
        """The same, to be measured."""
        return self.runs[0].samples if len(self.runs) == 1 else self.predictions.samples()

    @property
    def method(self) -> str:
        """The trainer without its suffix, or the name of the file or of its folder."""
        if self.row:
            return self.row["method"]
        return self.path.parent.name if self.path.name == PREDICTIONS_FILE else self.path.stem

    @property
    def lam(self) -> float | None:
        """Lambda of a CMP variant, None for others."""
        return self.row["lambda"] if self.row.get("term") == "CMP" else None

    @property
    def seeds(self) -> list[int]:
        """The seeds; none where nothing was learned from one."""
        return [row["seed"] for row in self.rows] if self.row.get("trainable") else []

    @property
    def place(self) -> tuple[Any, ...]:
        """The test set, and with what was trained: a question for which methods compete."""
        return tuple(self.row[name] for name in ("test_set", "trained_on", "backbone", "shots"))

    @property
    def variant(self) -> str:
        """The method with its term and the term's form, the same for all weights."""
        if not (self.row.get("term") or self.row.get("calibrator")):
            return self.method
        parts = [self.method, self.row["term"], self.row["calibrator"]]
        form = "" if self.row["form"] in ("", "ratio") else f" ({self.row['form']})"
        return " + ".join(filter(None, parts)) + form

    @property
    def title(self) -> str:
        """The variant with the weight of its term."""
        weight = self.row.get("lambda")
        return self.variant if weight is None else f"{self.variant}, λ = {weight:g}"

    @property
    def setting(self) -> tuple[str, ...]:
        """What a run and its baseline share, shots and seeds last; nothing without a record."""
        row = self.row
        if not row:
            return ()
        elsewhere = f"from {row['trained_on']}" if row["trained_on"] != row["dataset"] else "all"
        parts = (row["dataset"], elsewhere, row["classes"], row["split"], row["backbone"])
        named = [part for part in parts if part not in ("all", "test")]
        all_images = "all images" if row["trainable"] else "zero-shot"
        shots = shots_text(row["shots"]) if row["shots"] else all_images
        seeds = ", ".join(str(one["seed"]) for one in self.rows)
        return (*named, shots, f"seed{'s'[: len(self.rows) > 1]} {seeds}")

    @property
    def heading(self) -> str:
        """The setting in one line."""
        return ", ".join(self.setting)

    def same_but(self, *keys: str) -> tuple[str, ...]:
        """Return all settings but those beginning with ``keys``, which may differ."""
        if not self.row:
            return (str(self.path),)
        kept = [k for k in self.row if is_setting(k) and not k.startswith(keys)]
        facts = (self.row["trained_on"], str(self.row.get("weights.digest")))
        return (*facts, *(f"{key}={self.row[key]}" for key in sorted(kept)))

    def level(self, over: str) -> float | None:
        """Return lambda or shots; None without lambda, and without shots as zero-shot CLIP."""
        return self.lam if over == "lambda" else self.row.get("shots")

    def class_index(self, wanted: str) -> int:
        """Return the index of a class given by its name or number."""
        names = self.predictions.classnames
        if wanted in names:
            return names.index(wanted)
        if wanted.isdecimal() and int(wanted) < len(names):
            return int(wanted)
        hint = closest(wanted, names)
        raise UserError(f'--class: there is no class "{wanted}" among {len(names)}{hint}')


def styles(groups: Iterable[Group]) -> dict[str, tuple[int, int]]:
    """Number the looks by title: a colour per method, a symbol per term and weight of a method."""
    titles: dict[str, list[str]] = {}
    for method, title in sorted({(group.method, group.title) for group in groups}):
        titles.setdefault(method, []).append(title)
    return {
        title: (colour, symbol)
        for colour, known in enumerate(titles.values())
        for symbol, title in enumerate(known)
    }


def file_stem(*parts: str) -> str:
    """Return parts joined to a file name of letters, digits, dots, hyphens and underscores."""
    plain = (part.replace("λ = ", "lambda").replace(" + ", "_") for part in parts)
    return "_".join(re.sub(r"[^\w.-]+", "-", part.replace(" ", "")) for part in plain)


def find_predictions(sources: Iterable[str]) -> tuple[list[StoredRun], list[str]]:
    """Find the runs below directories and npz files, and what was wrong with others."""
    runs: dict[Path, StoredRun] = {}
    problems: list[str] = []
    for source in map(Path, sources):
        if not source.exists():
            raise UserError(f"{source}: there is no such file or directory")
        found, wrong = find_runs(source.parent if source.is_file() else source, True)
        known = {run.path: run for run in found}
        broken = {Path(problem.partition(": ")[0]).parent for problem in wrong}
        problems += wrong
        for path in [source] if source.is_file() else sorted(source.rglob(PREDICTIONS_FILE)):
            if path.parent not in broken:
                runs[path] = known.get(path) or StoredRun(path)
    return list(runs.values()), list(dict.fromkeys(problems))


def grouped(runs: Iterable[StoredRun], pool: bool = True) -> list[Group]:
    """Return runs that differ only in their seed as one; without ``pool``, each alone."""
    groups: dict[str, list[tuple[Any, StoredRun]]] = {}
    for run in runs:
        row = row_of(run) if run.record else {}
        key = row["group"] if pool and row else str(run.folder if row else run.path)
        groups.setdefault(key, []).append((row.get("seed", 0), run))
    return [
        Group([run for _, run in sorted(members, key=lambda member: member[0])])
        for members in groups.values()
    ]


def paired(groups: list[Group]) -> list[list[Group]]:
    """Return each baseline with one of its CMP variants; what has no partner, alone.

    Of several variants the one with the default lambda is taken, or else the smallest. Two files
    without records are a pair as well.
    """
    if len(groups) == 2 and not any(group.row for group in groups):
        return [groups]
    baselines = Baselines(row for group in groups for row in group.rows)
    home = {row["directory"]: group for group in groups for row in group.rows}
    variants: dict[Any, list[Group]] = {}
    for group in (group for group in groups if group.lam is not None):
        found = [home[plain["directory"]] for _, plain in baselines.pairs(group.rows)]
        key = id(found[0]) if found else group.row["pair"]
        variants.setdefault(key, []).append(group)
    pairs = [
        [group, *sorted(variants.pop(id(group), []), key=_preference)[:1]]
        for group in groups
        if group.lam is None
    ]
    return pairs + [[min(rest, key=_preference)] for rest in variants.values()]


def _preference(group: Group) -> tuple[bool, bool, float]:
    return group.row["form"] != "ratio", group.lam != DEFAULT_LAMBDA, group.lam or 0.0
