"""Train on one data set and test on others with the same learned prompts.

  coop-cmp transfer digits --shots 8        on its four shifts
  coop-cmp transfer imagenet --shots 16     domain generalisation: V2, Sketch, A and R
  coop-cmp transfer imagenet --shots 16 --targets caltech101 oxford_pets dtd

ImageNet-A and -R are tested over their own 200 classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from coop_cmp.cli.protocols import Columns, add_arguments, show, trainings
from coop_cmp.errors import UserError
from coop_cmp.runs.run import Run, is_zero_shot

__all__ = ["add_arguments", "elsewhere", "run"]

TARGETS = {
    "digits": ["digits_noise", "digits_blur", "digits_rotate", "digits_invert"],
    "imagenet": ["imagenetv2", "imagenet_sketch", "imagenet_a", "imagenet_r"],
}


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a run failed."""
    runs = trainings(args, "transfer")
    targets = args.targets or TARGETS.get(runs[0].dataset)
    if not targets:
        raise UserError("transfer: name the data sets to test on with --targets")
    tests = [elsewhere(training, targets) for training in runs]
    return show(args, tests, [("mean of targets", lambda means: mean(means[1:]))] * 3)


def elsewhere(run: Run, targets: Sequence[str]) -> Columns:
    """Return the tests of a run on its own data set and on every target."""
    source = "" if is_zero_shot(run.trainer) else run.dataset
    tests = {target: replace(run, dataset=target, source=source) for target in targets}
    return {run.dataset: run, **tests}
