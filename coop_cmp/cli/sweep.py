"""``python -m coop_cmp.cli.sweep``: run a grid and show the results as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from coop_cmp.cli.grid_options import (
    add_grid_arguments,
    add_launch_arguments,
    add_project_arguments,
    execute,
    grids_of,
    project_of,
)
from coop_cmp.cli.guarded import guarded
from coop_cmp.report.collect import mixed_weights
from coop_cmp.report.summary import summary
from coop_cmp.runs.grid import all_runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m coop_cmp.cli.sweep", description=__doc__)
    parser.add_argument("grid", nargs="?", type=Path, help="YAML file; options replace its axes")
    add_grid_arguments(parser)
    add_project_arguments(parser)
    add_launch_arguments(parser)
    args = parser.parse_args(arguments)
    project = project_of(args)
    runs = all_runs(grids_of(args))
    complete = execute(args, project, runs)
    if complete is None:
        return 0
    frame = project.frame(runs)
    if len(frame):
        print(f"\n{summary(frame)}")
        for problem in mixed_weights(row for _, row in frame.iterrows()):
            print(f"Warning: {problem}")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(guarded(main))
