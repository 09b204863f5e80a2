"""Show all runs below a directory, as a table or as CSV."""

from __future__ import annotations

import argparse
import sys

from tabulate import tabulate

from coop_cmp.cli.options import given
from coop_cmp.metrics.records import shown_in
from coop_cmp.runs.frame import LABELS, load
from coop_cmp.runs.notes import notes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("output", type=given, help="directory with runs below it")
    parser.add_argument(
        "--csv", action="store_true", help="print CSV with every setting, metric and circumstance"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; what could not be read goes to stderr."""
    frame = load(args.output)
    for problem in frame.attrs["problems"]:
        print(f"left out: {problem}", file=sys.stderr)
    if args.csv:
        frame.to_csv(sys.stdout)
        return 0
    if not len(frame):
        print(f"0 runs below {args.output}")
        return 0
    telling = [name for name in LABELS if frame[name].nunique(dropna=False) > 1]
    shown = frame[[*telling, *(metric.name for metric in shown_in("table"))]]
    print(tabulate(shown.values.tolist(), list(shown), tablefmt="github", floatfmt=".4f"))
    for note in notes(frame["notes"]):
        print(f"Note: {note}")
    print(f"{len(frame)} runs; --csv has every setting, metric and circumstance.")
    return 0
