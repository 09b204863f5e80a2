"""Make one HTML page of all runs below a directory; it needs no network and no server."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from coop_cmp.cli.options import folder
from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("output", type=folder, help="directory with runs below it")
    parser.add_argument(
        "--to", type=Path, help="file to write; default: report.html in the directory"
    )
    parser.add_argument("--title", help="title of the page; default: the directory's name")
    parser.add_argument(
        "--no-intervals", action="store_true", help="omit confidence intervals, which is faster"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from coop_cmp.cli.images import ImageFiles  # these load torch, too slow for --help
    from coop_cmp.report.page.build import build
    from coop_cmp.runs.frame import find_runs

    start = time.monotonic()
    runs, problems = find_runs(args.output, predictions=True)
    if not runs:
        reason = f" (left out: {problems[0]})" if problems else ""
        raise UserError(f"{args.output}: there are no complete runs below it{reason}")
    title = args.title or args.output.resolve().name
    images = ImageFiles()
    page = build(runs, title, problems, args.output, not args.no_intervals, images)
    text = page.encode(errors="backslashreplace")  # a title, or the path of a damaged file
    path = args.to or args.output / "report.html"
    with atomic_write(path) as file:
        file.write(text)
    seconds = time.monotonic() - start
    print(f"{path}: {len(runs)} runs, {len(text) / 1e6:.1f} MB, made in {seconds:.0f} s")
    return 0
