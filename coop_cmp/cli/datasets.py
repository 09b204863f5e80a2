"""Check the data sets on disk, or bring an archive into the expected layout (docs/datasets.md).

coop-cmp datasets check [name ...] [--full] [--json]
coop-cmp datasets prepare cifar10|ucf101|imagenet <archive or folder>
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from coop_cmp.cli.options import add_data_argument

if TYPE_CHECKING:
    from coop_cmp.datasets.tools.check import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    checking = verbs.add_parser("check", help="compare what is on disk with what must be there")
    checking.add_argument("names", nargs="*", help="data sets, such as caltech101; default: all")
    checking.add_argument("--full", action="store_true", help="open all images, not a sample")
    checking.add_argument("--json", action="store_true", help="print JSON instead of a table")
    preparing = verbs.add_parser("prepare", help="bring an archive into the expected layout")
    preparing.add_argument("name", choices=["cifar10", "imagenet", "ucf101"], help="data set")
    preparing.add_argument("source", help="archive or folder, see docs/datasets.md")
    for verb in (checking, preparing):
        add_data_argument(verb, "data")


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a check found something."""
    from coop_cmp.datasets.tools.check import check  # these load torch, too slow for --help
    from coop_cmp.datasets.tools.prepare import prepare

    data = Path(args.data).expanduser().absolute()
    if args.verb == "prepare":
        print(prepare(args.name, Path(args.source).expanduser(), data))
        return 0
    reports = check(args.names, str(data), full=args.full)
    if args.json:
        print(json.dumps([asdict(report) for report in reports], indent=2))
    else:
        print(show(reports))
    bad = {"problems", "not found"} if args.names else {"problems"}
    return int(any(report.state in bad for report in reports))


def show(reports: list[Report]) -> str:
    """Return a table of the reports, and below it their problems."""
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
