"""``python -m coop_cmp.cli.export``: a trained run as a file that open_clip alone can use."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from coop_cmp.cli.guarded import guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="bash scripts/export.sh", description=__doc__)
    parser.add_argument("run", help="directory of a trained run")
    parser.add_argument("file", help="the file to write, *.safetensors")
    parser.add_argument(
        "--calibrator",
        metavar="FILE",
        help="what python -m coop_cmp.cli.calibrate (temperature or vector) made of the run",
    )
    args = parser.parse_args(arguments)

    from coop_cmp.predict.exporter import export

    for path in export(args.run, args.file, args.calibrator):
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
