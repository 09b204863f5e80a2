"""``python -m coop_cmp.sweep``: run a grid and show the results as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coop_cmp.errors import UserError
from coop_cmp.report.collect import mixed_weights
from coop_cmp.report.summary import summary
from coop_cmp.sweep.cli import (
    add_launch_arguments,
    add_project_arguments,
    execute,
    guarded,
    project_of,
)
from coop_cmp.sweep.grid import Grid, all_runs, parse_grid, read_grids

AXES: dict[str, type] = {
    "datasets": str,
    "trainers": str,
    "backbones": str,
    "shots": int,
    "seeds": int,
    "lambdas": float,
    "forms": str,
    "targets": str,
}
_WORDS = {int: "whole numbers", float: "numbers"}


def add_grid_arguments(parser: argparse.ArgumentParser) -> None:
    """The axes of a grid."""
    for name in AXES:
        parser.add_argument(f"--{name}", nargs="+", metavar="X")
    parser.add_argument("--options", nargs="+", metavar="KEY=VALUE", help="settings for train.py")
    parser.add_argument("--tag", help="end of the directories' names, for runs with other options")


def axes_of(args: argparse.Namespace) -> dict[str, Any]:
    """The axes that were given, with their values still to be checked by the grid."""
    axes: dict[str, Any] = {}
    for name, kind in AXES.items():
        words = getattr(args, name)
        if words is not None:
            try:
                axes[name] = [kind(word) for word in words]
            except ValueError as error:
                given = " ".join(words)
                raise UserError(f"--{name}: expected {_WORDS[kind]}, got {given!r}") from error
    if args.options:
        pairs = [word.partition("=") for word in args.options]
        if not all(equals for _, equals, _ in pairs):
            raise UserError(f"--options: expected KEY=VALUE, got {' '.join(args.options)!r}")
        axes["options"] = {key: value for key, _, value in pairs}
    if args.tag:
        axes["tag"] = args.tag
    return axes


def grids_of(args: argparse.Namespace) -> list[Grid]:
    """The grids of the file, with the axes of the command line in their place."""
    axes = axes_of(args)
    return read_grids(args.grid, axes) if args.grid else [parse_grid(axes, "the command line")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m coop_cmp.sweep", description=__doc__)
    parser.add_argument("grid", nargs="?", type=Path, help="YAML file; options replace its axes")
    add_grid_arguments(parser)
    add_project_arguments(parser)
    add_launch_arguments(parser)
    args = parser.parse_args(arguments)
    project = project_of(args)
    runs = all_runs(grids_of(args))
    complete = execute(args, project, runs)
    states = [(run, project.state(run).results) for run in runs]
    done = [(run, results) for run, results in states if results is not None]
    if done and not args.dry_run:
        print(f"\n{summary(done)}")
        for problem in mixed_weights(results for _, results in done):
            print(f"Warning: {problem}")
    return 0 if complete or args.dry_run else 1


if __name__ == "__main__":
    sys.exit(guarded(main))
