"""Export a trained run as a safetensors file that open_clip alone can use."""

from __future__ import annotations

import argparse

from coop_cmp.cli.options import given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("run", type=given, help="directory of a trained run")
    parser.add_argument("file", help="file to write, *.safetensors")
    parser.add_argument(
        "--calibrator", metavar="RUN", help="run that coop-cmp calibrate temperature or vector made"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from coop_cmp.predict.export import export  # loads torch, too slow for --help

    for path in export(args.run, args.file, args.calibrator):
        print(f"wrote {path}")
    return 0
