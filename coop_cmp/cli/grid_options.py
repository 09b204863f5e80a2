"""Command-line parts that the sweep, the lambda search and the tables share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coop_cmp.cli import dry
from coop_cmp.errors import UserError
from coop_cmp.runs.grid import Grid, parse_grid, read_grids
from coop_cmp.runs.own_data import add_folder
from coop_cmp.runs.project import Project, find_root
from coop_cmp.runs.run import Run
from coop_cmp.sweep.devices import check_devices, visible_gpus
from coop_cmp.sweep.failures import Failure, report_failures
from coop_cmp.sweep.launcher import Launcher, Settings
from coop_cmp.sweep.process import import_for_runs
from coop_cmp.sweep.progress import Progress, make_progress
from coop_cmp.sweep.slurm import attach
from coop_cmp.sweep.slurm.plan import parameters
from coop_cmp.sweep.timing import Estimator

SLURM_JOBS = 16


AXES: dict[str, type] = {
    "datasets": str,
    "trainers": str,
    "backbones": str,
    "shots": int,
    "seeds": int,
    "lambdas": float,
    "forms": str,
    "targets": str,
}
_WORDS = {int: "whole numbers", float: "numbers"}


def add_grid_arguments(parser: argparse.ArgumentParser) -> None:
    """The axes of a grid."""
    for name in AXES:
        parser.add_argument(f"--{name}", nargs="+", metavar="X")
    parser.add_argument("--options", nargs="+", metavar="KEY=VALUE", help="settings for train.py")
    parser.add_argument("--validate", action="store_true", help="test on the validation part too")
    parser.add_argument("--template", default="", help='the prompt of a folder, "a photo of a {}."')
    parser.add_argument("--names", default="", metavar="FILE", help="its classes' names")
    parser.add_argument("--tag", help="end of the directories' names, for runs with other options")


def axes_of(args: argparse.Namespace) -> dict[str, Any]:
    """The axes that were given, with their values still to be checked by the grid."""
    axes: dict[str, Any] = {}
    for name, kind in AXES.items():
        words = getattr(args, name)
        if words is not None:
            try:
                axes[name] = [kind(word) for word in words]
            except ValueError as error:
                given = " ".join(words)
                raise UserError(f"--{name}: expected {_WORDS[kind]}, got {given!r}") from error
    given = axes.get("datasets", [])
    axes |= {"datasets": [_named(word, args) for word in given]} if given else {}
    if (args.template or args.names) and axes.get("datasets") == given:
        raise UserError("--template and --names are for a folder of your own images")
    if args.options:
        pairs = [word.partition("=") for word in args.options]
        if not all(equals for _, equals, _ in pairs):
            raise UserError(f"--options: expected KEY=VALUE, got {' '.join(args.options)!r}")
        axes["options"] = {key: value for key, _, value in pairs}
    if args.tag:
        axes["tag"] = args.tag
    if args.validate:
        axes["validate"] = True
    return axes


def _named(word: str, args: argparse.Namespace) -> str:
    """The name of a data set; a folder of one's own images is made known by its name."""
    is_path = os.sep in word or word in (".", "..")
    if not is_path and (word in project_of(args).dataset_names or not Path(word).is_dir()):
        return word
    if not Path(word).expanduser().is_dir():
        raise UserError(f"datasets: there is no folder {word}")
    return add_folder(Path(word), project_of(args).output, args.template, args.names)


def grids_of(args: argparse.Namespace) -> list[Grid]:
    """The grids of the file, with the axes of the command line in their place."""
    axes = axes_of(args)
    return read_grids(args.grid, axes) if args.grid else [parse_grid(axes, "the command line")]


def add_project_arguments(parser: argparse.ArgumentParser) -> None:
    """Where things are."""
    parser.add_argument("--project", type=Path, metavar="DIR", help="the checkout with train.py")
    parser.add_argument("--output", type=Path, default=Path("output"), metavar="DIR")
    parser.add_argument("--data", default="", metavar="DIR", help="root of the data sets")


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """How runs are executed."""
    parser.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    parser.add_argument("--commands", action="store_true", help="with --dry-run: as shell commands")
    parser.add_argument("--redo", action="store_true", help="replace runs with other settings")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time")
    parser.add_argument("--devices", nargs="+", metavar="DEV", help="cpu, or cuda:0 cuda:1 ...")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of each run")
    parser.add_argument("--time-limit", type=float, default=720, metavar="MIN", help="of each run")
    parser.add_argument(
        "--fork",
        action=argparse.BooleanOptionalAction,
        help="load torch once and fork the runs; default: for GlyphCLIP on a CPU",
    )
    parser.add_argument("--slurm", metavar="'KEY=VALUE ...'", help="submit, with options of sbatch")
    parser.add_argument("--detach", action="store_true", help="leave once the jobs are submitted")
    parser.add_argument("--cancel", action="store_true", help="cancel the Slurm jobs of these runs")
    parser.add_argument("--per-job", type=int, metavar="N", help="runs at a time in a Slurm job")


def project_of(args: argparse.Namespace) -> Project:
    """The project that the arguments name."""
    root = (args.project or find_root()).resolve()
    data = str(Path(args.data).expanduser().resolve()) if args.data else ""
    return Project(root, args.output.expanduser().resolve(), data)


def settings_of(args: argparse.Namespace, runs: Sequence[Run]) -> Settings:
    """The launch settings that the arguments name, with defaults that fit machine and runs."""
    tiny = all(run.backbone == "GlyphCLIP" for run in runs)
    if args.devices or tiny:
        devices = tuple(args.devices or ["cpu"])
    else:
        # A job sees its own GPU, whatever there is here.
        gpus = 1 if args.slurm is not None else len(visible_gpus() or ())
        devices = tuple(f"cuda:{index}" for index in range(gpus)) or ("cpu",)
    check_devices(devices, here=args.slurm is None)
    given = (args.jobs, args.threads, args.time_limit, args.per_job)
    if not all(value is None or value > 0 for value in given):
        raise UserError("--jobs, --threads, --time-limit and --per-job take numbers above 0")
    if args.slurm is None and (args.detach or args.cancel or args.per_job):
        raise UserError("--detach, --cancel and --per-job go with --slurm")
    if args.commands and not args.dry_run:
        raise UserError("--commands goes with --dry-run")
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    on_cpu = "cpu" in devices
    if args.slurm is not None:
        side_by_side, share = SLURM_JOBS, args.per_job or 1
        given_cores = parameters(args.slurm).get("cpus-per-task", "")
        cores = int(given_cores) if given_cores.isdigit() else 1
    else:
        side_by_side = min(cores, 8) if on_cpu and tiny else len(devices)
        share = args.jobs or side_by_side
    jobs = args.jobs or side_by_side
    threads = args.threads or (0 if not on_cpu else 1 if tiny else max(1, cores // share))
    fork = tiny and devices == ("cpu",) if args.fork is None else args.fork
    limit = args.time_limit * 60
    return Settings(devices, jobs, threads, limit, fork=fork, redo=args.redo, patience=limit)


def execute(args: argparse.Namespace, project: Project, runs: Sequence[Run]) -> bool | None:
    """Do what is open of ``runs`` and say how it went.

    Returns:
        Whether all runs are done now; None where it was not to wait for them (a dry run, or Slurm
        jobs that go on or were cancelled) and there is nothing to show yet.
    """
    project.check(runs)
    settings = settings_of(args, runs)
    states = {run: project.state(run) for run in runs}
    open_runs = [run for run, state in states.items() if state.kind != "done"]
    to_train = {run for run in open_runs if run.training is None}
    open_runs += [r for r in runs if states[r].kind == "done" and r.training in to_train]
    estimator = Estimator()
    for run, state in states.items():
        if state.results is not None:
            estimator.add(run, float(state.results["seconds"]["total"]))
    per_job = args.per_job or 1
    slots = settings.jobs * per_job
    if args.dry_run and args.commands:
        dry.print_commands(project, settings, open_runs)
        return None
    if args.dry_run:
        dry.print_states(states)
        dry.print_time(open_runs, len(runs), estimator, slots)
        if args.slurm is not None:
            dry.print_arrays(open_runs, settings, estimator, per_job, args.slurm)
        return None
    if not open_runs:
        print(f"All {len(runs)} runs are complete in {project.output}.")
        return True
    done = len(runs) - len(open_runs)
    print(
        f"{len(open_runs)} of {len(runs)} runs to do, {settings.jobs} at a time on "
        f"{', '.join(settings.devices)}, output in {project.output}"
    )
    if args.slurm is not None:
        quiet = Progress(len(runs), done, slots, estimator)
        found = _on_slurm(args, project, settings, quiet, open_runs)
        if found is None:
            return None
        failures = found
    else:
        if settings.fork:
            import_for_runs(project, settings.threads)
        progress = make_progress(len(runs), done, settings.jobs, estimator)
        failures = Launcher(project, settings, progress).launch(open_runs)
    return _all_well(project, runs, failures)


def _on_slurm(
    args: argparse.Namespace,
    project: Project,
    settings: Settings,
    progress: Progress,
    runs: Sequence[Run],
) -> list[Failure] | None:
    """The runs that failed as Slurm jobs; None where jobs were left to go on or cancelled."""
    attachment = attach.Attachment(
        project, settings, progress, runs, parameters(args.slurm), args.per_job or 1
    )
    if args.cancel:
        attach.cancel(attachment)
        return None
    failures = attach.follow(attachment, args.detach)
    if args.detach:
        print("The same command without --detach attaches to the jobs; with --cancel ends them.")
    return failures


def _all_well(project: Project, runs: Sequence[Run], failures: Sequence[Failure]) -> bool:
    """Whether all runs are done and count; if not, say why."""
    if failures:
        print(f"\n{report_failures(project, failures)}", file=sys.stderr)
    failed = {failure.run for failure in failures}
    changed = [state for run in runs if run not in failed if (state := project.state(run)).reason]
    if changed:
        print(
            f"\n{len(changed)} runs do not count: settings changed while the sweep went on. "
            f"The first: {changed[0].reason}",
            file=sys.stderr,
        )
    return not failures and not changed
