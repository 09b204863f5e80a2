"""From run directories to the numbers in a table's cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import numpy as np

from coop_cmp.errors import UserError
from coop_cmp.report import significance
from coop_cmp.report.layout import Cell, Table
from coop_cmp.results import PREDICTIONS_FILE, RESULTS_FILE
from coop_cmp.sweep.grid import Run
from coop_cmp.sweep.project import Project, State

BINS = {"n_bins": significance.BINS, "closed": "right"}


@dataclass(frozen=True)
class Value:
    """What we have for a cell, in percent.

    Args:
        by_seed: the value of each seed for which all data sets are done.
        missing: runs that are not done.
        baseline_missing: runs of a twin's baseline that are not done, without which there is no
            change or one over fewer seeds.
        change: mean difference to the baseline over the seeds that both have, None without one.
        holds: whether that difference holds at 95 %.
    """

    by_seed: dict[int, float]
    missing: tuple[Run, ...] = ()
    baseline_missing: tuple[Run, ...] = ()
    change: float | None = None
    holds: bool = False


def mixed_weights(results: Iterable[Mapping[str, Any] | None]) -> list[str]:
    """A warning for every backbone whose results come from different weights."""
    weights: dict[str, dict[str, None]] = {}
    for result in filter(None, results):
        weights.setdefault(result["backbone"], {})[result["weights"]] = None
    return [
        f"the {backbone} runs do not share their weights: {', '.join(names)}"
        for backbone, names in weights.items()
        if len(names) > 1
    ]


@dataclass
class Collector:
    """Reads each run once and remembers what could not be used, by its path."""

    project: Project
    bootstrap: bool = True
    problems: dict[str, None] = field(default_factory=dict)
    _states: dict[Run, State] = field(default_factory=dict)
    _labels: dict[Run, int] = field(default_factory=dict)
    _replicates: dict[Run, dict[str, np.ndarray]] = field(default_factory=dict)

    def values(self, table: Table) -> dict[Cell, Value]:
        """The values of all cells of a table."""
        values = {cell: self.value(cell) for cell in dict.fromkeys(table.cells())}
        for problem in mixed_weights(state.results for state in self._states.values()):
            self.problems[problem] = None
        return values

    def value(self, cell: Cell) -> Value:
        """The value of one cell, compared with its baseline if it is a twin's."""
        ours = self._by_seed(cell)
        missing = self._missing(cell)
        if cell.baseline is None:
            return Value(ours, missing)
        baseline_missing = self._missing(cell.baseline)
        theirs = self._by_seed(cell.baseline)
        common = [seed for seed in ours if seed in theirs]
        if not common:
            return Value(ours, missing, baseline_missing)
        differences = [ours[seed] - theirs[seed] for seed in common]
        holds = self.bootstrap and self._holds(cell, cell.baseline, common, differences)
        return Value(ours, missing, baseline_missing, mean(differences), holds)

    def _missing(self, cell: Cell) -> tuple[Run, ...]:
        return tuple(run for runs in cell.runs for run in runs if self._state(run) != "done")

    def _state(self, run: Run) -> str:
        if run not in self._states:
            state = self.project.state(run)
            if state.results and state.results["bins"] != BINS:
                path = self.project.directory(run) / RESULTS_FILE
                state = State("foreign", f"{path}: made with {state.results['bins']}, not {BINS}")
            self._states[run] = state
            if state.reason:
                self.problems[state.reason] = None
        return self._states[run].kind

    def _by_seed(self, cell: Cell) -> dict[int, float]:
        values: dict[int, list[float]] = {}
        for runs in cell.runs:
            for run in runs:
                if self._state(run) == "done":
                    results = self._states[run].results or {}
                    values.setdefault(run.seed, []).append(100 * results["metrics"][cell.metric])
        return {seed: mean(v) for seed, v in values.items() if len(v) == len(cell.runs)}

    def _holds(
        self, cell: Cell, baseline: Cell, seeds: Iterable[int], differences: list[float]
    ) -> bool:
        wanted = set(seeds)
        replicates = []
        try:
            for ours, theirs in zip(cell.runs, baseline.runs, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    if one.seed in wanted:
                        replicates.append(self._difference(one, other, cell.metric))
        except UserError as error:
            self.problems[f"no comparison: {error}"] = None
            return False
        return significance.holds(np.mean(replicates, axis=0), differences)

    def _difference(self, one: Run, other: Run, metric: str) -> np.ndarray:
        ours, theirs = self._replicate(one)[metric], self._replicate(other)[metric]
        if self._labels[one] != self._labels[other]:
            raise UserError(f"{one} and {other} were not tested on the same images")
        return ours - theirs

    def _replicate(self, run: Run) -> dict[str, np.ndarray]:
        """The metrics of a run on every resample of its test images [R]."""
        if run not in self._replicates:
            path = self.project.directory(run) / PREDICTIONS_FILE
            outcomes = significance.read_outcomes(path)
            counts = significance.draws(len(outcomes.images), run.dataset)
            self._labels[run] = outcomes.labels
            self._replicates[run] = significance.replicate(outcomes, counts)
        return self._replicates[run]
