"""The command line of ``scripts/datasets.sh``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from tabulate import tabulate

from coop_cmp.errors import UserError

from .check import Report, check
from .prepare import PREPARE, prepare


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """``check`` and ``prepare`` with their options."""
    parser = argparse.ArgumentParser(prog="datasets.sh")
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="compare what is on disk with what must be there")
    checking.add_argument("names", nargs="*", help="such as caltech101; default: all")
    checking.add_argument("--full", action="store_true", help="open every image, not a sample")
    checking.add_argument("--json", action="store_true", help="print JSON, not a table")
    preparing = commands.add_parser("prepare", help="bring an archive into the expected layout")
    preparing.add_argument("name", choices=sorted(PREPARE))
    preparing.add_argument("source", help="the archive or folder, see docs/datasets.md")
    for command in (checking, preparing):
        root = os.environ.get("DATA", "data")
        command.add_argument("--root", default=root, help="default: $DATA, or data")
    return parser.parse_args(argv)


def show(reports: list[Report]) -> str:
    """A table, and below it the problems."""
    headers = ["data set", "state", "classes", "train", "val", "test"]
    headers += ["opened", "unreadable", "same content"]
    rows = []
    lines = []
    for report in reports:
        row: list[object] = [report.dataset, report.state]
        if report.counts:
            row += report.counts.values()
            row += [report.opened, len(report.unreadable), len(report.same_content)]
        rows.append(row)
        lines += [f"{report.dataset}: {problem}" for problem in report.problems]
        if report.state == "not found":
            lines.append(f"{report.dataset}: no folder {report.folder}")
    return "\n".join([tabulate(rows, headers), *lines])


def main(argv: list[str] | None = None) -> int:
    """Run the command; 0 when all is well, 1 when a check found something, 2 for wrong usage."""
    args = parse_args(argv)
    root = os.path.abspath(os.path.expanduser(args.root))
    try:
        if args.command == "prepare":
            print(prepare(args.name, Path(args.source).expanduser(), Path(root)))
            return 0
        reports = check(args.names, root, full=args.full)
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps([asdict(report) for report in reports], indent=2))
    else:
        print(show(reports))
    bad = {"problems", "not found"} if args.names else {"problems"}
    return int(any(report.state in bad for report in reports))


if __name__ == "__main__":
    sys.exit(main())
