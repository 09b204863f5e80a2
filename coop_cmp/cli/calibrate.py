"""Calibrate finished runs after their training: ``coop-cmp calibrate temperature <run>``.

Each result is a run of its own beside the one it was made from, and tables and figures show it like
any other. The labels come from (--labels)
  val        the few-shot validation images (default): a test of the same model with TEST.SPLIT val
  map        the same, with a prior that holds the temperature near 1
  crossfit   shots held out in turn: trainings with DATASET.FOLD 1/4, 2/4, ... and TEST.SPLIT val
  fixed:T    none: the temperature is given
sals and dac need no labels but tests of ZeroshotCLIP. The runs that are needed are found by their
settings below --output.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from coop_cmp.calibrate.methods import CALIBRATORS, calibrate
from coop_cmp.calibrate.runs import Archive, in_a_sweep, store_calibrated
from coop_cmp.cli.options import given
from coop_cmp.errors import UserError
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.runs.stored import StoredRun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add("method", choices=CALIBRATORS, help="calibrator")
    add("run", nargs="+", type=given, help="directories of finished runs")
    add("--labels", default="val", metavar="SOURCE", help="source: val, map, crossfit or fixed:T")
    add("--fit", nargs="+", default=[], metavar="RUN", help="runs to take the labels from")
    add("--zero-shot", metavar="RUN", help="run of ZeroshotCLIP on the same images")
    add("--output", metavar="DIR", help="directory of runs to search in; default: that of the run")
    add("--to", metavar="DIR", help="directory of the new run; default: beside the run")
    add("--redo", action="store_true", help="replace a run that is there")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.to and len(args.run) > 1:
        raise UserError("--to names one directory, but there are several runs")
    fit = [StoredRun.of(other) for other in args.fit]
    clip = StoredRun.of(args.zero_shot) if args.zero_shot else None
    archives: dict[Path, Archive] = {}
    for folder in args.run:
        plain = StoredRun.of(folder)
        root = Path(args.output) if args.output else output_of(plain.folder)
        archive = archives.setdefault(root, Archive(root, fit, clip))
        result = calibrate(args.method, plain, archive, args.labels)
        place, record = store_calibrated(plain, result, args.to, args.redo)
        before, after = plain.record["metrics"], record["metrics"]
        changes = ", ".join(
            f"{name} {100 * before[key]:.2f} -> {100 * after[key]:.2f}"
            for key, name in (("accuracy", "accuracy"), ("ece", "ECE"))
        )
        print(f"{place}: {changes}; {result.note}")
    return 0


def output_of(folder: Path) -> Path:
    """The directory of the sweep that a run is of; otherwise that in which the run's own lies."""
    folder = folder.resolve()
    return folder.parents[3 if in_a_sweep(folder) else 0]


def calibrate_runs(project: Project, runs: Iterable[Run]) -> list[str]:
    """Calibrate the runs that are not calibrated yet, and return why some could not be."""
    archive = Archive(project.output)
    problems: dict[str, None] = {}
    for one in runs:
        plain = one.uncalibrated
        if plain is None or project.state(one).kind == "done":
            continue
        try:
            stored = StoredRun.of(project.directory(plain))
            method = one.calibrator.partition("-")[0]
            result = calibrate(method, stored, archive, one.labels)
            store_calibrated(stored, result, project.directory(one), redo=True)
        except UserError as error:
            problems[f"{one}: {error}"] = None
    return list(problems)
