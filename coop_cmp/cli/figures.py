"""Draw reliability diagrams, confidences, risk against coverage, Figure 1 of the paper, and curves.

  coop-cmp figures output/digits                      into output/digits/figures
  coop-cmp figures a/predictions.npz b/predictions.npz --to figures
  coop-cmp figures output --column-width 3.25 --no-title --formats pdf

Runs are found below the directories given. A method and its CMP variant with the same data set,
backbone and shots are drawn side by side, their seeds pooled; curves over lambda and over shots
appear when there are at least two values of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coop_cmp.cli.options import given
from coop_cmp.errors import UserError
from coop_cmp.report import COLUMN, FORMATS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add = parser.add_argument
    add("sources", nargs="+", type=given, help="directories with runs below them, or npz files")
    add("--to", help="directory to write to; default: figures/ in the first source")
    add("--class", dest="class_name", help="class of Figure 1; default: the most confused one")
    add("--all", action="store_true", help="draw every seed instead of pooling them")
    add(
        "--column-width",
        type=float,
        default=COLUMN,
        metavar="INCHES",
        help="width of one column of the paper (%(default)s)",
    )
    add("--no-title", action="store_true", help="omit titles")
    add("--formats", nargs="+", choices=FORMATS, default=FORMATS, help="formats; default: all")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from matplotlib import rc_context  # this and torch are too slow for --help

    from coop_cmp.report.figures import LOOK, draw_all, save
    from coop_cmp.report.groups import find_predictions

    first = Path(args.sources[0])
    folder = Path(args.to) if args.to else (first.parent if first.is_file() else first) / "figures"
    runs, problems = find_predictions(args.sources)
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    if not runs:
        raise UserError(f"no predictions.npz below {', '.join(args.sources)}")

    def save_all(figure: Figure, name: str) -> None:
        figure.set_size_inches(figure.get_size_inches() * args.column_width / COLUMN)
        if args.no_title:
            figure.suptitle("").set_in_layout(False)
        for suffix in args.formats:
            save(figure, folder / f"{name}.{suffix}")

    with rc_context(LOOK):
        draw_all(runs, save_all, args.class_name, args.all)
    return 0
