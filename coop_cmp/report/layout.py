"""What stands where in a table, and which runs each cell is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from coop_cmp.metrics.records import find_metric
from coop_cmp.report.paper import Printed
from coop_cmp.runs.pairs import baseline_of, change_of
from coop_cmp.runs.run import (
    DEFAULT_FORM,
    DEFAULT_LAMBDA,
    Run,
    is_twin,
    is_zero_shot,
    with_needs,
)

SEEDS = (1, 2, 3)
HEADINGS = {"accuracy": "Acc", "weighted_mce": "MCE, weighted", "mce": "MCE, standard"}
"""The paper's heads where they differ from ours."""


def heading(metric: str) -> str:
    """The head of a metric's column, in the paper's words."""
    return HEADINGS.get(metric) or find_metric(metric).heading


@dataclass(frozen=True)
class Cell:
    """One place of a table.

    Args:
        runs: for each data set its runs over seeds; the cell of several data sets is their mean.
            Empty where there is nothing to run.
        metric: our name of the metric.
        paper: what the paper prints there.
    """

    runs: tuple[tuple[Run, ...], ...]
    metric: str
    paper: Printed | None = None

    @property
    def trainer(self) -> str:
        """The method, "" where there is nothing to run."""
        return self.runs[0][0].trainer if self.runs else ""

    @property
    def changed_by(self) -> str:
        """What changes the method, "" for a plain one."""
        return change_of(self.trainer, self.runs[0][0].calibrator) if self.runs else ""

    @property
    def baseline(self) -> Cell | None:
        """The same without what changes the method; None for a plain one."""
        found = (map(baseline_of, runs) for runs in self.runs)
        runs = tuple(tuple(run for run in runs if run) for runs in found)
        return replace(self, runs=runs) if runs and runs[0] else None


@dataclass(frozen=True)
class Block:
    """A part of a table with its own column heads; ``cells`` is [rows][columns]."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]

    @classmethod
    def fill(
        cls,
        title: str,
        rows: Sequence[str],
        columns: Mapping[str, tuple[str, ...]],
        cell: Callable[..., Cell],
    ) -> Block:
        """Make a block from a function of the row's label and of what its column is about."""
        cells = tuple(tuple(cell(row, *about) for about in columns.values()) for row in rows)
        return cls(title, tuple(rows), tuple(columns), cells)


@dataclass(frozen=True)
class Table:
    """A table by its name in the paper."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    holm: bool = False  # whether its columns are families unless told otherwise
    own: bool = False  # whether its values themselves get intervals

    def cells(self) -> list[Cell]:
        """All cells, row by row."""
        return [cell for block in self.blocks for row in block.cells for cell in row]

    def columns(self) -> list[tuple[Cell, ...]]:
        """The columns of all blocks: one metric in one place, which is one question."""
        return [column for block in self.blocks for column in zip(*block.cells, strict=True)]

    def runs(self) -> list[Run]:
        """All runs it is made of, each once, a training before its evaluations.

        The baseline of a variant is among them: tables are for their difference.
        """
        needed: list[Run] = []
        for cell in self.cells():
            for part in (cell.baseline, cell):
                needed += [run for runs in part.runs for run in runs] if part else []
        return with_needs(needed)


def cell_of(
    run: Run,
    datasets: Sequence[str],
    metric: str,
    seeds: Sequence[int],
    paper: Printed | None = None,
) -> Cell:
    """The cell of one method, on one data set or on the mean of several.

    Args:
        run: Says the rest: the trainer, the shots, and where it was trained if not there.
    """
    if is_zero_shot(run.trainer):
        run, seeds = replace(run, shots=0, source=""), (1,)
    if is_twin(run.trainer) and run.lam is None:
        run = replace(run, lam=DEFAULT_LAMBDA, form=DEFAULT_FORM)
    plans = [
        replace(run, dataset=name, source=run.source if run.source != name else "")
        for name in datasets
    ]
    runs = (tuple(replace(plan, seed=seed) for seed in seeds) for plan in plans)
    return Cell(tuple(runs), metric, paper)


def metric_blocks(
    title: str,
    methods: Sequence[str],
    labels: Sequence[str],
    metrics: Sequence[str],
    cell: Callable[..., Cell],
) -> list[Block]:
    """A column per metric if there is one data set, else a block per metric."""
    heads = {heading(metric): metric for metric in metrics}
    if len(labels) == 1:
        columns = {head: (labels[0], metric) for head, metric in heads.items()}
        return [Block.fill(f"{title}, {labels[0]}", methods, columns, cell)]
    return [
        Block.fill(f"{title}, {head}", methods, {label: (label, metric) for label in labels}, cell)
        for head, metric in heads.items()
    ]
