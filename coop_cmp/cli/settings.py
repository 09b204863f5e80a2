"""Show the settings below a key, as the documentation has them."""

from __future__ import annotations

import argparse

import coop_cmp.datasets
import coop_cmp.runs.evaluator
import coop_cmp.trainers  # noqa: F401 - importing these declares their settings
from coop_cmp.config import SETTINGS
from coop_cmp.config.describe import page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "key", nargs="?", default="", help="beginning of keys, such as OPTIM; default: all"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    print(page({key: s for key, s in SETTINGS.items() if key.startswith(args.key)}))
    return 0
