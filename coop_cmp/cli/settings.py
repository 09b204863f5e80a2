"""Show the settings below a key, as the documentation has them."""

from __future__ import annotations

import argparse

import coop_cmp.datasets
import coop_cmp.runs.evaluator
import coop_cmp.trainers  # noqa: F401 - importing these declares their settings
from coop_cmp.config import SETTINGS
from coop_cmp.config.describe import page
from coop_cmp.errors import UserError, closest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "key", nargs="?", default="", help="beginning of keys, such as OPTIM; default: all"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    wanted = args.key.upper()
    found = {key: setting for key, setting in SETTINGS.items() if key.startswith(wanted)}
    if not found:
        nodes = {key.rpartition(".")[0] for key in SETTINGS}
        hint = closest(wanted, [*nodes, *SETTINGS])
        raise UserError(f'no setting begins with "{args.key}"{hint}')
    print(page(found))
    return 0
