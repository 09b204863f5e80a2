"""The numbers in a table's cells, as views of the frame of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from coop_cmp.errors import UserError
from coop_cmp.metrics.records import METRICS
from coop_cmp.report.layout import Cell, Table
from coop_cmp.runs.compare import Comparer, Difference, corrected
from coop_cmp.runs.frame import is_setting
from coop_cmp.runs.notes import notes
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run

FIT = ("accuracy", "wrong", "gradient")
"""The training accuracy, the share of samples that were wrong, and the size of the term's gradient
against that of the cross-entropy."""


@dataclass(frozen=True)
class Value:
    """What we have for a cell, as fractions.

    Args:
        by_seed: the value of each seed for which all data sets are done.
        missing: runs that are not done.
        baseline_missing: runs of a variant's baseline that are not done, without which there is no
            change or one over fewer seeds.
        change: the difference to the baseline over the seeds that both have, None without one.
        fit: what a term did in training, see ``FIT``; empty without one.
        own: the value itself with its interval, where the table asks for it.
    """

    by_seed: dict[int, float]
    missing: tuple[Run, ...] = ()
    baseline_missing: tuple[Run, ...] = ()
    change: Difference | None = None
    fit: tuple[float, ...] = ()
    own: Difference | None = None


def mixed_weights(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A warning for every backbone whose results come from different weights."""
    weights: dict[str, dict[Any, str]] = {}
    for row in rows:
        weights.setdefault(row["backbone"], {})[row.get("weights.digest")] = row["weights.name"]
    return [
        f"the {backbone} runs do not share their weights: {', '.join(names.values())}"
        for backbone, names in weights.items()
        if len(names) > 1
    ]


def fit_of(rows: Iterable[Mapping[str, Any]]) -> tuple[float, ...]:
    """Return the means over runs of what ``FIT`` names; nothing where a run does not know it."""
    found = [[row.get(f"fit.{name}") for name in FIT] for row in rows if row["term"]]
    known = all(isinstance(value, float) and value == value for values in found for value in values)
    return tuple(map(mean, zip(*found, strict=True))) if known else ()


class Collector:
    """The values of tables' cells, as views of the frame of their runs.

    Args:
        tables: All that will be asked for, so that each run is read once.
        intervals: Whether differences get intervals, for which every image's outcome is read.
    """

    def __init__(self, project: Project, tables: Iterable[Table], intervals: bool = True) -> None:
        self.comparer = Comparer(intervals)
        runs = dict.fromkeys(run for one in tables for run in one.runs())
        self._places = {run: str(project.directory(run)) for run in runs}
        frame = project.frame(runs)
        self._reasons: dict[str, str] = frame.attrs["reasons"]
        used = [c for c in frame if c.startswith("TEST.") or not is_setting(c)]
        self._notes = frame["notes"] if len(frame) else {}
        found = {row["directory"]: row for row in frame[used].to_dict("records")}
        self._rows = {run: found[place] for run, place in self._places.items() if place in found}

    def values(self, table: Table, holm: bool = False) -> tuple[dict[Cell, Value], list[str]]:
        """Return the values of all cells of a table, and what was wrong with its runs.

        Args:
            holm: Whether the comparisons of each column of a block are corrected as a family.
        """
        problems: dict[str, None] = {}
        cells = dict.fromkeys(table.cells())
        values = {cell: self._value(cell, table.own, problems) for cell in cells}
        for column in table.columns() if holm else ():
            family = {cell: change for cell in column if (change := values[cell].change)}
            for cell, change in zip(family, corrected(family.values()), strict=True):
                values[cell] = replace(values[cell], change=change)
        places = [self._places[run] for run in table.runs()]
        told = map(str, notes({p: self._notes[p] for p in places if p in self._notes}))
        reasons = [self._reasons[place] for place in places if place in self._reasons]
        mixed = mixed_weights(self._rows[run] for run in table.runs() if run in self._rows)
        return values, list(dict.fromkeys([*reasons, *problems, *mixed, *told]))

    def _value(self, cell: Cell, own: bool, problems: dict[str, None]) -> Value:
        ours = self._by_seed(cell)
        rows = [row for found in ours.values() for row in found]
        by_seed = {seed: mean(row[cell.metric] for row in found) for seed, found in ours.items()}
        value = Value(by_seed, self._missing(cell))
        if own and rows and cell.metric in METRICS:
            found = self._sure(lambda comparer: comparer.value(rows, cell.metric), problems)
            value = replace(value, own=found)
        if cell.baseline is None:
            return value
        theirs = self._by_seed(cell.baseline)
        pairs = [
            pair
            for seed, rows in ours.items()
            if seed in theirs
            for pair in zip(rows, theirs[seed], strict=True)
        ]
        change = self._sure(lambda comparer: comparer.compare(pairs, cell.metric), problems)
        missing = self._missing(cell.baseline)
        return replace(value, baseline_missing=missing, change=change, fit=fit_of(rows))

    def _sure(
        self, compare: Callable[[Comparer], Difference | None], problems: dict[str, None]
    ) -> Difference | None:
        """A difference with its interval, or without one where images cannot be resampled."""
        try:
            return compare(self.comparer)
        except UserError as error:
            problems[f"no interval: {error}"] = None
            return compare(Comparer(intervals=False))

    def _missing(self, cell: Cell) -> tuple[Run, ...]:
        return tuple(run for runs in cell.runs for run in runs if run not in self._rows)

    def _by_seed(self, cell: Cell) -> dict[int, list[Mapping[str, Any]]]:
        """The rows of each seed for which all test sets are done, in the order of the sets."""
        found: dict[int, list[Mapping[str, Any]]] = {}
        for run in (run for runs in cell.runs for run in runs if run in self._rows):
            found.setdefault(run.seed, []).append(self._rows[run])
        return {seed: rows for seed, rows in found.items() if len(rows) == len(cell.runs)}
