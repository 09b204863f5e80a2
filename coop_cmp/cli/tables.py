"""The paper's tables by name, ours beside the paper's.

coop-cmp tables list                                  all names
coop-cmp tables run domain_calibration_metrics        do the runs of a table
coop-cmp tables show domain_calibration_metrics       print it
coop-cmp tables embedded                              all tables in miniature, on a CPU
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from coop_cmp.cli.calibrate import calibrate_runs
from coop_cmp.cli.execute import execute
from coop_cmp.cli.options import add_launch_arguments, add_output_argument, project_of
from coop_cmp.errors import UserError, closest
from coop_cmp.files import atomic_write
from coop_cmp.report import FORMATS as FIGURES
from coop_cmp.report.collect import Collector
from coop_cmp.report.definitions import FIGURE, TITLES, names, table
from coop_cmp.report.embedded import EMBEDDED
from coop_cmp.report.layout import Table
from coop_cmp.report.render import CSV_HEAD, FORMATS, Renderer
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run, with_needs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="the names of the tables")
    run = verbs.add_parser("run", help="do the runs of tables")
    show = verbs.add_parser("show", help="print tables")
    embedded = verbs.add_parser("embedded", help="run and show the miniatures")
    for verb in (run, show):
        verb.add_argument(
            "names", nargs="+", metavar="NAME", help="table, or all: those of the paper"
        )
    run.add_argument("--trainers", nargs="+", metavar="X", help="methods to run; default: all")
    run.add_argument("--datasets", nargs="+", metavar="X", help="data sets to run; default: all")
    run.add_argument("--shots", nargs="+", type=int, metavar="N", help="shots to run; default: all")
    for verb in (run, show, embedded):
        text = "seeds; default: 1 2 3, and 1 to 10 for the embedded tables"
        verb.add_argument("--seeds", nargs="+", type=int, metavar="N", help=text)
    add_output_argument(show)
    for verb in (run, embedded):
        add_launch_arguments(verb)
    for verb in (show, embedded):
        verb.add_argument(
            "--no-intervals", action="store_true", help="omit confidence intervals, which is faster"
        )
        verb.add_argument(
            "--holm",
            action="store_true",
            help="correct significance for multiple comparisons (Holm)",
        )
    show.add_argument("--picture", type=Path, metavar="FILE", help="draw accuracy against ECE")
    show.add_argument("--format", choices=FORMATS, default="text", help="format (%(default)s)")
    embedded.add_argument(
        "--format", choices=FORMATS, default="markdown", help="format (%(default)s)"
    )


def _tables(wanted: Sequence[str], seeds: Sequence[int] | None) -> list[Table]:
    chosen = [*TITLES, FIGURE] if list(wanted) == ["all"] else wanted
    return [table(name, tuple(seeds or ())) for name in chosen]


def _selected(tables: Sequence[Table], args: argparse.Namespace) -> list[Run]:
    """The runs of the tables that the filters leave, and the trainings they need.

    Raises:
        UserError: for a filter that names nothing in the tables, or filters that leave nothing.
    """
    everything = runs = [run for t in tables for run in t.runs()]
    where = ", ".join(args.names)
    for name, attribute in (("trainers", "trainer"), ("datasets", "dataset"), ("shots", "shots")):
        wanted = getattr(args, name)
        if wanted is None:
            continue
        known = list(dict.fromkeys(str(getattr(run, attribute)) for run in everything))
        for value in map(str, wanted):
            if value not in known:
                has = f"{closest(value, known)} (known: {', '.join(known)})"
                raise UserError(f"--{name}: {value} is not in {where}{has}")
        runs = [run for run in runs if getattr(run, attribute) in (*wanted, 0)]
    if not runs:
        raise UserError(f"--trainers, --datasets and --shots together leave no run of {where}")
    return with_needs(runs)


def _show(args: argparse.Namespace, project: Project, tables: Sequence[Table]) -> str:
    parts = []
    everything: dict[str, None] = {}
    collector = Collector(project, tables, not args.no_intervals)
    for one in tables:
        values, problems = collector.values(one, args.holm or one.holm)
        everything |= dict.fromkeys(problems)
        parts.append(Renderer(one, values, problems, args.format, args.holm or one.holm).render())
    if args.format != "csv":
        return "\n".join(parts)
    for problem in everything:
        print(f"Warning: {problem}", file=sys.stderr)  # a CSV file has no place for it
    return CSV_HEAD + "".join(parts)


def _draw(args: argparse.Namespace, project: Project, tables: Sequence[Table]) -> None:
    from coop_cmp.report.tradeoff import save_tradeoff  # matplotlib is slow to load

    if args.picture.suffix.removeprefix(".") not in FIGURES:
        endings = ", ".join(f".{ending}" for ending in FIGURES)
        raise UserError(f"--picture {args.picture}: has to end in one of {endings}")
    if len(tables) > 1 or args.no_intervals:
        raise UserError("--picture shows one table at a time, with its intervals")
    (one,) = tables
    values, _ = Collector(project, tables).values(one, args.holm or one.holm)
    save_tradeoff(one, values, args.picture)


def _execute(args: argparse.Namespace, project: Project, runs: Sequence[Run]) -> bool | None:
    """Do what is open: trainings and tests, then what calibrators make of them.

    Runs that share training views come one after the other: the store need not hold those of all.
    """
    runs = sorted(runs, key=lambda r: (r.backbone, r.source or r.dataset, r.shots, r.seed))
    complete = execute(args, project, [run for run in runs if not run.calibrator])
    if complete is None:
        return None
    problems = calibrate_runs(project, (run for run in runs if run.calibrator))
    for problem in problems:
        print(f"not calibrated: {problem}", file=sys.stderr)
    return complete and not problems


def _embedded(args: argparse.Namespace, project: Project) -> int:
    tables = _tables(list(EMBEDDED), args.seeds)
    complete = _execute(args, project, with_needs(run for t in tables for run in t.runs()))
    if complete is None:
        return 0
    text = _show(args, project, tables)
    ending = {"text": "txt", "markdown": "md", "latex": "tex", "csv": "csv"}[args.format]
    path = project.output / f"embedded.{ending}"
    with atomic_write(path) as file:
        file.write(text.encode())
    print(f"\n{text}\nThe same is in {path}.")
    return 0 if complete else 1


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a run failed."""
    if args.verb == "list":
        print("\n".join(names()))
        return 0
    project = project_of(args)
    if args.verb == "embedded":
        return _embedded(args, project)
    tables = _tables(args.names, args.seeds)
    if args.verb == "show" and args.picture:
        _draw(args, project, tables)
        return 0
    if args.verb == "show":
        print(_show(args, project, tables), end="")
        return 0
    complete = _execute(args, project, _selected(tables, args))
    return 1 if complete is False else 0
