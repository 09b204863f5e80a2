"""``python -m coop_cmp.cli.protocols``: tests on classes or images of another kind.

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

from coop_cmp.cli.grid_options import (
    add_grid_arguments,
    add_launch_arguments,
    add_project_arguments,
    axes_of,
    execute,
    project_of,
)
from coop_cmp.cli.guarded import guarded
from coop_cmp.errors import UserError
from coop_cmp.losses.names import split_trainer
from coop_cmp.report.summary import LEGEND, changes, mean_text
from coop_cmp.runs.compare import Comparer
from coop_cmp.runs.grid import parse_grid
from coop_cmp.runs.pairs import Baselines, baseline_of, change_of
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run, is_zero_shot, number_text

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
    options = yaml.safe_load(text).get(split_trainer(run.trainer)[0])
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
    comparer: Comparer,
) -> str:
    """A row per method, a column per test with mean and deviation over seeds, and one for all.

    Args:
        last: the head of the last column, which combines the means of the others.
    """
    methods: dict[Run, dict[str, list[Run]]] = {}
    for columns in tests:
        first = replace(next(iter(columns.values())), seed=0)
        row = methods.setdefault(first, {name: [] for name in columns})
        for name, run in columns.items():
            row[name] = list(dict.fromkeys([*row[name], run]))
    lines = []
    for method, row in methods.items():
        frames = {name: project.frame(runs) for name, runs in row.items()}
        values = [list(frame[metric]) if len(frame) else [] for frame in frames.values()]
        whole = mean_text([combine([mean(v) for v in values])], metric) if all(values) else "-"
        lam = "-" if method.lam is None else number_text(method.lam)
        lines.append([method.trainer, lam, *(mean_text(v, metric) for v in values), whole])
        if baseline_of(method):
            plain = {name: list(map(baseline_of, runs)) for name, runs in row.items()}
            found = [_change(project, frames[n], plain[n], metric, comparer) for n in row]
            if any(text != "-" for text in found):
                lines.append([f"by {change_of(method.trainer)}", "", *found, ""])
    head = ["trainer", "lambda", *next(iter(methods.values())), last]
    return tabulate(lines, head, tablefmt="github", disable_numparse=True)


def _change(
    project: Project, ours: Any, plain: Sequence[Any], metric: str, comparer: Comparer
) -> str:
    """The change against the runs of the plain method, with its interval."""
    theirs = project.frame(plain)
    if not len(ours) or not len(theirs):
        return "-"
    baselines = Baselines(theirs.to_dict("records"))
    found = changes(ours.to_dict("records"), baselines, [metric], comparer)
    return found[0] if found else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m coop_cmp.cli.protocols", description=__doc__)
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
    if complete is not None:
        comparer = Comparer()
        average = ("mean", mean) if args.protocol == "base2new" else last
        for title, metric, column in (
            ("Accuracy", "accuracy", last),
            ("ECE", "ece", average),
            ("NLL", "nll", average),
        ):
            print(f"\n{title}\n{table(project, tests, metric, *column, comparer)}")
        print(f"{LEGEND} The last column is made of the means.")
    return 1 if complete is False else 0


if __name__ == "__main__":
    sys.exit(guarded(main))
