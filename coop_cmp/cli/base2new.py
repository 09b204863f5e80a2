"""Train on the first half of the classes and test on both halves: base-to-new generalisation.

coop-cmp base2new digits --shots 8
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from statistics import harmonic_mean, mean

from coop_cmp.cli.protocols import Columns, add_arguments, show, trainings
from coop_cmp.runs.run import Run

__all__ = ["add_arguments", "halves", "run"]


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a run failed."""
    tests = [halves(training) for training in trainings(args, "base2new")]
    average = ("mean", mean)
    return show(args, tests, [("harmonic mean", harmonic_mean), average, average])


def halves(run: Run) -> Columns:
    """Return the tests of a run on both halves."""
    return {"base": replace(run, classes="base"), "new": replace(run, classes="new")}
