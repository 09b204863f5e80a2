"""Train methods over shots, seeds and lambdas, and show their results as a table.

  coop-cmp sweep digits --shots 8
  coop-cmp sweep ./my_images --shots 4 --template "a photo of a {}, a breed of cat."
  coop-cmp sweep all --lambdas 0.01 0.1 --data /path/to/data --dry-run
  coop-cmp sweep grid.yaml --jobs 4

Complete runs are skipped and interrupted ones resume.
"""

from __future__ import annotations

import argparse

from coop_cmp.cli.execute import execute
from coop_cmp.cli.options import add_grid_arguments, grids_of, project_of
from coop_cmp.report.collect import mixed_weights
from coop_cmp.report.summary import summary

SHOTS = (1, 2, 4, 8, 16)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_grid_arguments(
        parser,
        "data sets: names, folders of your own images, all (the paper's eleven); or a YAML grid",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a run failed."""
    project = project_of(args)
    grids = grids_of(args, shots=SHOTS)
    runs = list(dict.fromkeys(run for grid in grids for run in grid.runs()))
    complete = execute(args, project, runs)
    if complete is None:
        return 0
    frame = project.frame(runs)
    if len(frame):
        print(f"\n{summary(frame)}")
        for problem in mixed_weights(row for _, row in frame.iterrows()):
            print(f"Warning: {problem}")
    return 0 if complete else 1
