"""``python -m coop_cmp.sweep.protocols``: tests of what was learned on classes or images of another
kind.

base2new: train on the first half of the classes, test on both halves.
transfer: train on one data set, test on others with their own class names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import harmonic_mean, mean
from typing import Any

import yaml
from tabulate import tabulate

from coop_cmp.errors import UserError
from coop_cmp.report.summary import percent
from coop_cmp.sweep.__main__ import add_grid_arguments, axes_of
from coop_cmp.sweep.cli import (
    add_launch_arguments,
    add_project_arguments,
    execute,
    guarded,
    project_of,
)
from coop_cmp.sweep.grid import Run, is_zero_shot, number_text, parse_grid
from coop_cmp.sweep.project import Project

Columns = dict[str, Run]

TARGETS = {
    "digits": ["digits_noise", "digits_blur", "digits_rotate", "digits_invert"],
    "imagenet": ["imagenetv2", "imagenet_sketch", "imagenet_a", "imagenet_r"],
}
"""Where ``transfer`` tests if it is not told: domain generalisation."""


def halves(run: Run) -> Columns:
    """The tests of base-to-new generalisation."""
    return {"base": replace(run, classes="base"), "new": replace(run, classes="new")}


def elsewhere(run: Run, targets: Sequence[str]) -> Columns:
    """The test on the source and on every target."""
    source = "" if is_zero_shot(run.trainer) else run.dataset
    tests = {target: replace(run, dataset=target, source=source) for target in targets}
    return {run.dataset: run, **tests}


def published_settings(project: Project, protocol: str, run: Run) -> Run:
    """The run with what its method's authors set in this protocol, in a directory of its own."""
    text = (project.root / "configs" / "protocols" / f"{protocol}.yaml").read_text(encoding="utf-8")
    options = yaml.safe_load(text).get(run.trainer.removesuffix("_CMP"))
    if not options or run.backbone == "GlyphCLIP":
        return run
    pairs = tuple((key, str(value)) for key, value in options.items())
    return replace(run, options=(*pairs, *run.options), tag=protocol)


def table(
    project: Project,
    tests: Sequence[Columns],
    metric: str,
    last: str,
    combine: Callable[[list[float]], float],
) -> str:
    """A row per method, a column per test with mean and deviation over seeds, and one for all.

    Args:
        last: the head of the last column, which combines the means of the others.
    """
    rows: dict[Run, dict[str, list[float]]] = {}
    for columns in tests:
        first = replace(next(iter(columns.values())), seed=0)
        row = rows.setdefault(first, {name: [] for name in columns})
        for name, run in columns.items():
            results = project.state(run).results
            if results is not None:
                row[name].append(results["metrics"][metric])
    lines = []
    for run, row in rows.items():
        whole = percent([combine([mean(v) for v in row.values()])]) if all(row.values()) else "-"
        lam = "-" if run.lam is None else number_text(run.lam)
        lines.append([run.trainer, lam, *map(percent, row.values()), whole])
    head = ["trainer", "lambda", *next(iter(rows.values())), last]
    return tabulate(lines, head, tablefmt="github", disable_numparse=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m coop_cmp.sweep.protocols", description=__doc__)
    parser.add_argument("protocol", choices=("base2new", "transfer"))
    add_grid_arguments(parser)
    add_project_arguments(parser)
    add_launch_arguments(parser)
    args = parser.parse_args(arguments)
    axes: dict[str, Any] = axes_of(args)
    targets = axes.pop("targets", None)
    grid = parse_grid(axes, "the command line")
    if len(grid.datasets) > 1 or len(grid.shots) > 1:
        raise UserError(f"{args.protocol} takes one data set and one number of shots at a time")
    project = project_of(args)
    trainings = [published_settings(project, args.protocol, run) for run in grid.runs()]
    if args.protocol == "base2new":
        tests = [halves(run) for run in trainings]
        last: tuple[str, Callable[[list[float]], float]] = ("harmonic mean", harmonic_mean)
    else:
        targets = targets or TARGETS.get(grid.datasets[0])
        if not targets:
            raise UserError("transfer: name the data sets to test on with --targets")
        tests = [elsewhere(run, targets) for run in trainings]
        last = ("mean of targets", lambda means: mean(means[1:]))
    runs = list(dict.fromkeys(run for columns in tests for run in columns.values()))
    complete = execute(args, project, runs)
    if not args.dry_run:
        print(f"\nAccuracy\n{table(project, tests, 'accuracy', *last)}")
        average = ("mean", mean) if args.protocol == "base2new" else last
        print(f"\nECE\n{table(project, tests, 'ece', *average)}")
        print("Percent; mean ± standard deviation over seeds; the last column from the means.")
    return 0 if complete or args.dry_run else 1


if __name__ == "__main__":
    sys.exit(guarded(main))
