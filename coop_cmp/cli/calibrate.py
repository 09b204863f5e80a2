"""Calibrate finished runs: ``python -m coop_cmp.cli.calibrate temperature <run>``.

Predictions in, predictions out: each result is a run of its own beside the one it was made from,
and tables and figures show it like any other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from coop_cmp.calibrate.methods import CALIBRATORS, Sources, calibrate
from coop_cmp.calibrate.runs import Archive, in_a_sweep, store_calibrated
from coop_cmp.cli.guarded import guarded
from coop_cmp.errors import UserError
from coop_cmp.runs.stored import StoredRun

DESCRIPTION = """\
Calibrate finished runs after their training. The labels come from (--labels)
  val        the few-shot validation images (default): a test of the same model with TEST.SPLIT val
  map        the same, with a prior that holds the temperature near 1
  crossfit   shots held out in turn: trainings with DATASET.FOLD 1/4, 2/4, ... and TEST.SPLIT val
  fixed:T    nowhere: the temperature is given
sals and dac need no labels but tests of ZeroshotCLIP. What is needed is searched for by settings,
not by names, below --runs.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m coop_cmp.cli.calibrate",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("method", choices=CALIBRATORS)
    add("run", nargs="+", help="directories of finished runs")
    add("--labels", default="val", metavar="SOURCE", help="val, map, crossfit or fixed:T")
    add("--fit", nargs="+", default=[], metavar="RUN", help="tests to take the labels from")
    add("--zero-shot", metavar="RUN", help="the test of ZeroshotCLIP on the same images")
    add("--runs", metavar="DIR", help="where to search; default: the output directory of the run")
    add("--output", metavar="DIR", help="the new run's directory; default: beside the run")
    add("--redo", action="store_true", help="replace a run that is there")
    args = parser.parse_args(arguments)
    if args.output and len(args.run) > 1:
        raise UserError("--output names one directory, but there are several runs")
    archives: dict[Path, Archive] = {}
    for folder in args.run:
        run = StoredRun.of(folder)
        root = Path(args.runs) if args.runs else output_of(run.folder)
        sources = Sources(
            archives.setdefault(root, Archive(root)),
            args.labels,
            [StoredRun.of(other) for other in args.fit],
            StoredRun.of(args.zero_shot) if args.zero_shot else None,
        )
        result = calibrate(args.method, run, sources)
        place, record = store_calibrated(run, result, args.output, args.redo)
        before, after = run.record["metrics"], record["metrics"]
        changes = ", ".join(
            f"{name} {100 * before[key]:.2f} -> {100 * after[key]:.2f}"
            for key, name in (("accuracy", "accuracy"), ("ece", "ECE"))
        )
        print(f"{place}: {changes}; {'; '.join(result.notes)}")
    return 0


def output_of(folder: Path) -> Path:
    """The directory of the sweep that a run is of; otherwise that in which the run's own lies."""
    folder = folder.resolve()
    return folder.parents[3 if in_a_sweep(folder) else 0]


if __name__ == "__main__":
    sys.exit(guarded(main))
