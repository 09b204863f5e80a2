"""Arguments that commands share, and what they make of them: grids, places, launch settings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coop_cmp.errors import UserError
from coop_cmp.files import resolved
from coop_cmp.report.definitions import ELEVEN
from coop_cmp.runs.grid import AXES, Grid, parse_grid, read_grids
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.sweep.devices import check_devices, cores_here, visible_gpus
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.slurm.plan import parameters

SLURM_JOBS = 16
LIMITS = {"jobs": 1024, "threads": 1024, "per_job": 1024, "time_limit": 366 * 24 * 60}


def given(word: str) -> str:
    """Return an argument; refuse an empty one, which would stand for the current folder."""
    if not word:
        raise argparse.ArgumentTypeError("it is empty; is a variable not set?")
    return word


def folder(word: str) -> Path:
    """Return the path that an argument names."""
    return Path(given(word))


def add_grid_arguments(parser: argparse.ArgumentParser, datasets: str) -> None:
    """Add the data sets, of which ``datasets`` is the help, the other axes and how to run."""
    parser.usage = "%(prog)s <dataset> [...] [options]"  # options that take several come last
    add = parser.add_argument
    add("datasets", nargs="+", type=given, metavar="dataset", help=datasets)
    for name, axis in AXES.items():
        add(f"--{name}", nargs="+", metavar="X", help=axis.doc)
    add(
        "--options", nargs="+", metavar="KEY=VALUE", help="settings of all runs (coop-cmp settings)"
    )
    add("--validate", action="store_true", default=None, help="test on validation images too")
    add("--template", default="", help='prompt for a folder, such as "a photo of a {}."')
    add(
        "--names", default="", metavar="FILE", help="class names of a folder: <class folder> <name>"
    )
    add("--tag", help="suffix of the directories' names, for runs with --options")
    add_launch_arguments(parser)


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """Add where runs are."""
    text = "folder of runs (%(default)s)"
    parser.add_argument("--output", type=folder, default=Path("output"), metavar="DIR", help=text)


def add_data_argument(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add where data sets are."""
    default = os.environ.get("DATA", default)
    text = "folder of data sets ($DATA)"
    parser.add_argument("--data", default=default, metavar="DIR", help=text)


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where things are and how runs are executed."""
    add_output_argument(parser)
    add_data_argument(parser)
    add = parser.add_argument
    add("--dry-run", action="store_true", help="list the runs and stop")
    add("--commands", action="store_true", help="print shell commands, with --dry-run")
    add("--redo", action="store_true", help="replace runs with other settings")
    add("--jobs", type=int, metavar="N", help="number of runs at a time")
    add("--devices", nargs="+", metavar="DEV", help="devices: cpu, or cuda:0 cuda:1 ...")
    add("--threads", type=int, metavar="N", help="number of CPU threads of each run")
    add(
        "--time-limit", type=float, default=720, metavar="MIN", help="minutes per run (%(default)s)"
    )
    add(
        "--fork",
        action=argparse.BooleanOptionalAction,
        help="load torch once and fork the runs; default: for GlyphCLIP on a CPU",
    )
    add("--slurm", metavar="'KEY=VALUE ...'", help="submit to Slurm, with options of sbatch")
    add("--detach", action="store_true", help="exit once the jobs are submitted")
    add("--cancel", action="store_true", help="cancel the Slurm jobs of these runs")
    add("--per-job", type=int, default=1, metavar="N", help="runs at a time in a Slurm job")


def project_of(args: argparse.Namespace) -> Project:
    """Return the project that the arguments name; loads torch."""
    import coop_cmp.trainers  # noqa: F401 - declares the methods, too slow for --help

    data = getattr(args, "data", "")
    data = str(resolved(data, "--data")) if data else ""
    return Project(resolved(args.output, "--output"), data)


def grids_of(args: argparse.Namespace, **defaults: Any) -> list[Grid]:
    """Return the grids of a file, with the axes of the command line in their place, or one grid."""
    files = [word for word in args.datasets if word.endswith((".yaml", ".yml"))]
    if not files:
        return [grid_of(args, **defaults)]
    if len(args.datasets) > 1:
        raise UserError(f"{files[0]}: a grid file is given alone, without other data sets")
    return read_grids(Path(files[0]), _axes(args))


def grid_of(args: argparse.Namespace, **defaults: Any) -> Grid:
    """Return the grid of the data sets and axes of the command line."""
    return parse_grid({**defaults, **_axes(args), **_datasets(args)}, "the command line")


def _axes(args: argparse.Namespace) -> dict[str, Any]:
    """The axes that were given, with their values still to be checked by the grid."""
    given = {name: getattr(args, name) for name in (*AXES, "tag", "validate")}
    axes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if args.options:
        pairs = [word.partition("=") for word in args.options]
        if not all(equals for _, equals, _ in pairs):
            raise UserError(f"--options: expected KEY=VALUE, got {' '.join(args.options)!r}")
        axes["options"] = {key: value for key, _, value in pairs}
        if len(axes["options"]) < len(pairs):
            raise UserError(f"--options: a key is given twice in {' '.join(args.options)!r}")
    return axes


def _datasets(args: argparse.Namespace) -> dict[str, list[str]]:
    """The names of the data sets that were given, ``all`` being the paper's eleven."""
    given = list(ELEVEN.values()) if args.datasets == ["all"] else args.datasets
    project = project_of(args)
    names = [_named(word, args, project) for word in given]
    if (args.template or args.names) and names == given:
        raise UserError("--template and --names are for a folder of your own images")
    return {"datasets": names}


def _named(word: str, args: argparse.Namespace, project: Project) -> str:
    """The name of a data set; a folder of one's own images is made known by its name."""
    is_path = os.sep in word or word in (".", "..")
    if not is_path and (word in project.dataset_names or not Path(word).is_dir()):
        return word
    folder = resolved(word, "datasets:")
    if not folder.is_dir():
        raise UserError(f"datasets: there is no folder {word}")
    from coop_cmp.datasets.own import add_folder, own_name  # loads torch

    name = own_name(folder)
    if (project.configs / "datasets" / f"{name}.yaml").is_file():
        name = f"own_{name}"  # a folder called digits is not the data set digits
    add_folder(folder, project.own_config(name), args.template, args.names)
    return name


def settings_of(args: argparse.Namespace, runs: Sequence[Run]) -> Settings:
    """Return the launch settings that the arguments name, with defaults by machine and runs."""
    tiny = all(run.backbone == "GlyphCLIP" for run in runs)
    if args.devices or tiny:
        devices = tuple(args.devices or ["cpu"])
    else:
        # A job sees its own GPU, whatever there is here.
        gpus = 1 if args.slurm is not None else len(visible_gpus() or ())
        devices = tuple(f"cuda:{index}" for index in range(gpus)) or ("cpu",)
    check_devices(devices, here=args.slurm is None)
    for name, most in LIMITS.items():
        value = getattr(args, name)
        if value is not None and not 0 < value <= most:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option}: expected a number above 0 and at most {most}, got {value}")
    if args.slurm is None and (args.detach or args.cancel or args.per_job > 1):
        raise UserError("--detach, --cancel and --per-job go with --slurm")
    if args.commands and not args.dry_run:
        raise UserError("--commands goes with --dry-run")
    cores = cores_here()
    on_cpu = "cpu" in devices
    if args.slurm is not None:
        side_by_side, share = SLURM_JOBS, args.per_job
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
