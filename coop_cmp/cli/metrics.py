"""Compute the calibration metrics of stored predictions.

With two files of the same test set, the second is compared with the first: differences with paired
bootstrap intervals. A file is an npz with logits or probs [N, C] and labels [N], or a CSV with a
header, a column "label" (numbers, or names of columns) and one column per class (then --kind says
what the numbers are). A run's directory stands for its predictions.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add("files", nargs="+", metavar="predictions.npz", help="one or two npz or CSV files")
    add("--kind", choices=["logits", "probs"], help="kind of the numbers in a CSV file")
    add("--bins", type=int, default=10, help="number of bins (%(default)s)")
    add("--closed", choices=["right", "left"], default="right", help="closed side of bins")
    add("--keys", nargs="+", metavar="KEY", help="metrics to compute; default: all")
    add("--intervals", action="store_true", help="compute intervals for a single file, too")
    add("--resamples", type=int, default=1000, help="number of bootstrap resamples (%(default)s)")
    add("--level", type=float, default=0.95, help="level of the intervals (%(default)s)")
    add("--seed", type=int, default=0, help="seed of the resamples (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from coop_cmp.cli.panel import show  # loads torch, too slow for --help

    show(args)
    return 0
