"""The frame of results as rows for people: runs that differ only in their seed are one row."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any

from coop_cmp.errors import UserError
from coop_cmp.metrics.records import shown_in
from coop_cmp.report.runs import FREE_OVER, StoredRun
from coop_cmp.report.summary import counterparts, plain_runs
from coop_cmp.runs import PREDICTIONS_FILE, Comparer, Difference, corrected
from coop_cmp.runs.frame import LABELS, is_setting

if TYPE_CHECKING:
    import pandas as pd

NAMES = tuple(name for name in LABELS if name != "seed")


@dataclass
class Row:
    """Runs that differ only in their seed.

    Attributes:
        runs: One per seed, in the order of seeds.
        values: By metric its mean over seeds with the interval.
        changes: By metric the difference to the baseline; empty for a baseline.
        together: By metric Holm's p over all rows of the page; NaN where there is none.
        baseline: The place of the row without term and calibrator among all rows.
        problems: Why something is missing.
    """

    runs: list[StoredRun]
    values: dict[str, Difference] = field(default_factory=dict)
    changes: dict[str, Difference] = field(default_factory=dict)
    together: dict[str, float] = field(default_factory=dict)
    baseline: int | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def first(self) -> Mapping[str, Any]:
        """The first run's row of the frame, the same for the others but for seed and numbers."""
        return self.facts[0]

    @property
    def facts(self) -> list[Mapping[str, Any]]:
        """The runs' rows of the frame."""
        return [run.row for run in self.runs if run.row is not None]

    def summary(self) -> dict[str, Any]:
        """What the page's table and overview show of it, ready for JSON."""
        seeds = [fact["seed"] for fact in self.facts] if self.first["trainable"] else []
        return {
            **{name: self.first[name] for name in NAMES},
            "title": self.runs[0].title,
            "seeds": seeds,
            "values": {
                name: [*_ends(value), self._deviation(name)] for name, value in self.values.items()
            },
            "changes": {
                name: [*_ends(change), _finite(change.p), _finite(self.together[name])]
                for name, change in self.changes.items()
            },
            "baseline": self.baseline,
            "families": {over: self.family(over) for over in FREE_OVER},
            "problems": self.problems,
        }

    def _deviation(self, metric: str) -> float | None:
        """The sample standard deviation over seeds, as in the tables."""
        values = [fact[metric] for fact in self.facts]
        return _finite(stdev(values)) if len(values) > 1 else None

    def family(self, over: str) -> str:
        """The same for rows that differ only in a term's weight, the shots or the classes."""
        words = (self.runs[0].variant, *self.runs[0].same_but(*FREE_OVER[over]))
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def _finite(value: float) -> float | None:
    # More digits than are shown, lest a number that is rounded twice differs from the tables'.
    return None if math.isnan(value) else float(f"{value:.9g}")


def _ends(value: Difference) -> list[float | None]:
    return [_finite(number) for number in (value.estimate, value.low, value.high)]


def rows_of(frame: pd.DataFrame, intervals: bool = True) -> list[Row]:
    """All rows of the page, in the order of the frame, with their numbers.

    Args:
        intervals: Whether to resample the images, for which every image's outcome is read.
    """
    facts: list[dict[str, Any]] = [
        {str(name): value for name, value in fact.items()} for fact in frame.to_dict("records")
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for fact in facts:
        groups.setdefault(fact["group"], []).append(fact)
    rows = [
        Row([_stored(fact) for fact in sorted(group, key=lambda fact: fact["seed"])])
        for group in groups.values()
    ]
    plain, places = plain_runs(facts), {row.first["group"]: i for i, row in enumerate(rows)}
    comparer = Comparer()
    for row in rows:
        pairs = counterparts(row.facts, plain)
        row.baseline = places[pairs[0][1]["group"]] if pairs else None
        _measure(row, pairs, comparer if intervals else None)
    for metric in (metric.name for metric in shown_in("table")):
        family = [row for row in rows if metric in row.changes]
        changes = corrected(row.changes[metric] for row in family)
        for row, change in zip(family, changes, strict=True):
            row.together[metric] = change.p
    return rows


def _stored(fact: dict[str, Any]) -> StoredRun:
    # A run without a setting that another has must not differ from its like by a NaN.
    known = {name: None if value != value else value for name, value in fact.items()}
    return StoredRun(Path(fact["directory"], PREDICTIONS_FILE), known)


def _measure(row: Row, pairs: Sequence[tuple[Any, Any]], comparer: Comparer | None) -> None:
    """Fill in a row's values and changes; without outcomes to resample, without intervals."""
    for metric in (metric.name for metric in shown_in("table")):
        plain = Difference(_mean(fact[metric] for fact in row.facts), seeds=len(row.facts))
        row.values[metric] = plain
        if pairs:
            shift = _mean(ours[metric] - theirs[metric] for ours, theirs in pairs)
            row.changes[metric] = Difference(shift, seeds=len(pairs))
        try:
            if comparer is not None:
                row.values[metric] = comparer.value(row.facts, metric)
                found = comparer.compare(pairs, metric) if pairs else None
                row.changes |= {metric: found} if found else {}
        except UserError as error:
            row.problems = list(dict.fromkeys([*row.problems, f"no interval: {error}"]))


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def settings_of(fact: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run by key."""
    return {k: v for k, v in fact.items() if is_setting(k) and v is not None}
