"""The runs as rows for people: those that differ only in their seed are one row."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any

from coop_cmp.errors import UserError
from coop_cmp.metrics.records import shown_in
from coop_cmp.report.collect import fit_of
from coop_cmp.report.groups import FREE_OVER, Group, grouped, styles
from coop_cmp.runs.compare import Comparer, Difference, corrected
from coop_cmp.runs.frame import LABELS
from coop_cmp.runs.notes import add_notes
from coop_cmp.runs.pairs import Baselines
from coop_cmp.runs.stored import StoredRun

NAMES = tuple(name for name in LABELS if name != "seed")


@dataclass
class Row:
    """A group of runs with its numbers.

    Attributes:
        style: The numbers of its colour and of its symbol.
        values: By metric its mean over seeds with the interval.
        changes: By metric the difference to the baseline; empty for a baseline.
        together: By metric Holm's p over the rows in the same place; NaN where there is none.
        baseline: The place of the row that it is compared with among all rows.
        problems: Why something is missing.
    """

    group: Group
    style: tuple[int, int]
    values: dict[str, Difference] = field(default_factory=dict)
    changes: dict[str, Difference] = field(default_factory=dict)
    together: dict[str, float] = field(default_factory=dict)
    baseline: int | None = None
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return what the page's table and overview show of it, ready for JSON."""
        return {
            **{name: self.group.row[name] for name in NAMES},
            "title": self.group.title,
            "setting": ", ".join(self.group.setting[:-1]),
            "place": "/".join(self.group.runs[0].folder.parts[-4:-1]),
            "style": self.style,
            "seeds": self.group.seeds,
            "values": {
                name: [*_ends(value), self._deviation(name)] for name, value in self.values.items()
            },
            "changes": {
                name: [*_ends(change), _finite(change.p), _finite(self.together[name])]
                for name, change in self.changes.items()
            },
            "baseline": self.baseline,
            "families": {over: self.family(over) for over in FREE_OVER},
            "fit": [_finite(share) for share in fit_of(self.group.rows)],
            "problems": self.problems,
        }

    def _deviation(self, metric: str) -> float | None:
        values = [row[metric] for row in _known(self.group.rows, metric)]
        return _finite(stdev(values)) if len(values) > 1 else None

    def family(self, over: str) -> str:
        """Return what rows share that differ only in a term's weight, the shots or the classes."""
        words = (self.group.variant, *self.group.same_but(*FREE_OVER[over]))
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]

    def measure(self, pairs: Sequence[tuple[Any, Any]], comparer: Comparer) -> None:
        """Fill in values and changes; without intervals where no outcomes can be resampled."""
        for metric in (metric.name for metric in shown_in("table")):
            rows = _known(self.group.rows, metric)
            both = [(b, a) for b, a in pairs if b[metric] is not None and a[metric] is not None]
            try:
                for one in (Comparer(intervals=False), comparer):
                    known = one.value(rows, metric) if rows else Difference(math.nan)
                    self.values[metric] = known
                    if change := one.compare(both, metric):
                        self.changes[metric] = change
            except UserError as error:
                self.problems = list(dict.fromkeys([*self.problems, f"no interval: {error}"]))


def _finite(value: float) -> float | None:
    # More digits than are shown, to avoid rounding twice.
    return None if math.isnan(value) else float(f"{value:.9g}")


def _ends(value: Difference) -> list[float | None]:
    return [_finite(number) for number in (value.estimate, value.low, value.high)]


def _known(rows: Iterable[Mapping[str, Any]], metric: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row[metric] is not None]


def rows_of(runs: Iterable[StoredRun], intervals: bool = True) -> list[Row]:
    """Return all rows of the page, in the order of the runs, with their numbers.

    Args:
        intervals: Whether to resample the images, for which every image's outcome is read.
    """
    groups = grouped(runs)
    add_notes([row for group in groups for row in group.rows])
    looks = styles(groups)
    rows = [Row(group, looks[group.title]) for group in groups]
    baselines = Baselines(run for group in groups for run in group.rows)
    places = {group.row["group"]: place for place, group in enumerate(groups)}
    comparer = Comparer(intervals)
    families: dict[Any, list[Row]] = {}
    for row in rows:
        pairs = baselines.pairs(row.group.rows)
        row.baseline = places[pairs[0][1]["group"]] if pairs else None
        row.measure(pairs, comparer)
        for metric in row.changes:
            families.setdefault((metric, *row.group.place), []).append(row)
    for (metric, *_), family in families.items():
        changes = corrected(row.changes[metric] for row in family)
        for row, change in zip(family, changes, strict=True):
            row.together[metric] = change.p
    return rows
