"""``coop-cmp <command>``: one file per command, imported when the command is called."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from coop_cmp import __version__
from coop_cmp.errors import DEBUG, UserError, closest, handled

COMMANDS = {
    "train": "train and test a method, with CoOp's command line",
    "sweep": "train methods over shots, seeds and lambdas, and show their table",
    "lambda": "choose lambda on validation images",
    "base2new": "train on half of the classes, test on both halves",
    "transfer": "train on one data set, test on others",
    "tables": "the paper's tables: list, run, show, embedded",
    "calibrate": "calibrate finished runs",
    "predict": "class probabilities of images",
    "export": "a trained run as a file that open_clip alone can use",
    "results": "all runs as a table or as CSV",
    "report": "all runs as one HTML page",
    "figures": "reliability diagrams and other figures of stored runs",
    "metrics": "calibration metrics of a predictions file",
    "datasets": "check the data sets on disk, prepare some of them",
    "validate": "compare weights, data and accuracies with the published ones",
    "models": "the backbones that there are, and how their text towers are encoded",
    "store": "what the feature store holds; prune it",
    "settings": "every setting with its default and what it may be",
}
_MODULES = {"lambda": "lambda_search"}  # a word of Python's own


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return handled(lambda: dispatch(words), "interrupted; the same command resumes")


def dispatch(words: Sequence[str]) -> int:
    """Run a command; errors are raised."""
    if "--debug" in words:
        os.environ[DEBUG] = "1"  # for the runs of a sweep as well
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path need not be text
    command, args = parse([word for word in words if word != "--debug"])
    return command.run(args)


def parse(words: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Return the module of the command that ``words`` name, and its arguments.

    Raises:
        SystemExit: After ``--help``, or for wrong arguments.
        UserError: There is no such command.
    """
    name = words[0] if words else "--help"
    if name.startswith("-"):
        _top_parser().parse_args([name])
        raise SystemExit(0)
    if name not in COMMANDS:
        raise UserError(f'coop-cmp has no command "{name}" (see --help){closest(name, COMMANDS)}')
    command = import_module(f"{__name__}.{_MODULES.get(name, name)}")
    parser = argparse.ArgumentParser(
        prog=f"coop-cmp {name}",
        description=command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    command.add_arguments(parser)
    return command, parser.parse_args(words[1:])


def _top_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="coop-cmp",
        usage="coop-cmp <command> [arguments]",
        description="\n".join(["commands:", *lines]),
        epilog="coop-cmp <command> --help shows its arguments. --debug, or the environment "
        f"variable {DEBUG}=1, shows the traceback of an error.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser
