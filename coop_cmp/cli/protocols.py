"""What base2new and transfer share: trained runs tested in several places, as tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean

from tabulate import tabulate

from coop_cmp.cli.execute import execute
from coop_cmp.cli.options import add_grid_arguments, grid_of, project_of
from coop_cmp.errors import UserError
from coop_cmp.files import read_yaml
from coop_cmp.losses.names import split_trainer
from coop_cmp.report.summary import LEGEND, changes, mean_text
from coop_cmp.runs.compare import Comparer
from coop_cmp.runs.pairs import Baselines, Row, baseline_of, change_of
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run, number_text

Columns = dict[str, Run]
Last = tuple[str, Callable[[list[float]], float]]
"""The head of a table's last column, and how it combines the means of the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a protocol."""
    add_grid_arguments(parser, "data set: a name, or a folder of your own images")


def trainings(args: argparse.Namespace, protocol: str) -> list[Run]:
    """Return the runs to train, with the settings that are published for the protocol."""
    grid = grid_of(args)
    if len(grid.datasets) > 1 or len(grid.shots) > 1:
        raise UserError(f"{protocol} takes one data set and one number of shots at a time")
    runs = replace(grid, targets=()).runs()  # what it is tested on is the protocol's to say
    return [published_settings(project_of(args), protocol, run) for run in runs]


def published_settings(project: Project, protocol: str, run: Run) -> Run:
    """The run with what its method's authors set in this protocol, in a directory of its own."""
    published = read_yaml(project.configs / "protocols" / f"{protocol}.yaml")
    options = published.get(split_trainer(run.trainer)[0])
    if not options or run.backbone == "GlyphCLIP":
        return run
    pairs = tuple((key, str(value)) for key, value in options.items())
    return replace(run, options=(*pairs, *run.options), tag=protocol)


def table(
    rows: Mapping[Run, Row],
    tests: Sequence[Columns],
    metric: str,
    last: Last,
    baselines: Baselines,
    comparer: Comparer,
) -> str:
    """A row per method, a column per test with mean and deviation over seeds, and one for all."""
    heading, combine = last
    methods: dict[Run, dict[str, list[Row]]] = {}
    for columns in tests:
        first = replace(next(iter(columns.values())), seed=0)
        done = methods.setdefault(first, {name: [] for name in columns})
        for name, run in columns.items():
            done[name] += [rows[run]] if run in rows else []
    lines = []
    for method, done in methods.items():
        values = [[row[metric] for row in found] for found in done.values()]
        whole = mean_text([combine([mean(v) for v in values])], metric) if all(values) else "-"
        lam = "-" if method.lam is None else number_text(method.lam)
        name = f"{method.trainer} (validation)" if method.split == "val" else method.trainer
        lines.append([name, lam, *(mean_text(v, metric) for v in values), whole])
        if baseline_of(method):
            found = [changes(rows, baselines, [metric], comparer) for rows in done.values()]
            if any(found):
                texts = [change[0] if change else "-" for change in found]
                lines.append([f"by {change_of(method.trainer)}", "", *texts, ""])
    head = ["trainer", "lambda", *next(iter(methods.values())), heading]
    return tabulate(lines, head, tablefmt="github", disable_numparse=True)


def show(args: argparse.Namespace, tests: Sequence[Columns], lasts: Sequence[Last]) -> int:
    """Do the tests and print their tables; 1 when a run failed.

    Args:
        lasts: The last columns of the tables of accuracy, ECE and NLL.
    """
    project = project_of(args)
    runs = list(dict.fromkeys(run for columns in tests for run in columns.values()))
    complete = execute(args, project, runs)
    if complete is not None:
        plain = [baseline for run in runs if (baseline := baseline_of(run))]
        rows = project.rows([*runs, *plain])
        baselines, comparer = Baselines(rows.values()), Comparer()
        metrics = (("Accuracy", "accuracy"), ("ECE", "ece"), ("NLL", "nll"))
        for (title, metric), last in zip(metrics, lasts, strict=True):
            print(f"\n{title}\n{table(rows, tests, metric, last, baselines, comparer)}")
        print(f"{LEGEND} The last column is computed from the means.")
    return 1 if complete is False else 0
