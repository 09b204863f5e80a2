"""``python -m coop_cmp.report.page output``: all runs below a directory as one HTML file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from coop_cmp.cli.guarded import guarded
from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write
from coop_cmp.report.page.build import build
from coop_cmp.runs.frame import find_runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="report", description=__doc__)
    parser.add_argument("output", type=Path, help="a directory with runs somewhere below it")
    parser.add_argument("--to", type=Path, help="the file to write; default: report.html in it")
    parser.add_argument("--title", help="default: the directory's name")
    parser.add_argument("--no-intervals", action="store_true", help="numbers alone, faster")
    args = parser.parse_args(arguments)
    start = time.monotonic()
    runs, problems = find_runs(args.output)
    if not runs:
        raise UserError(f"{args.output}: there are no complete runs below it")
    title = args.title or args.output.resolve().name
    text = build(runs, title, problems, args.output, not args.no_intervals).encode()
    path = args.to or args.output / "report.html"
    with atomic_write(path) as file:
        file.write(text)
    seconds = time.monotonic() - start
    print(f"{path}: {len(runs)} runs, {len(text) / 1e6:.1f} MB, made in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
