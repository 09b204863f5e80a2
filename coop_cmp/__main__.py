"""Run the training script of any CoOp-family checkout with the penalty: ``python -m coop_cmp``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from coop_cmp.checkout.runner import import_script, prepared_script, run_script
from coop_cmp.cli import handled

DESCRIPTION = """\
Run the training script of a CoOp-family checkout (CoOp, MaPLe, KgCoOp, ...) with the confidence
misalignment penalty and calibration metrics. Call it inside the checkout with the arguments of its
own train.py; --trainer X_CMP trains X with the penalty:

  python -m coop_cmp --trainer CoOp_CMP --root DATA --config-file ... TRAINER.CMP.LAMBDA 0.01
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m coop_cmp",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="All other arguments go to the training script unchanged.",
        allow_abbrev=False,
    )
    parser.add_argument("--script", default="train.py", help="the training script (%(default)s)")
    parser.add_argument("--list", action="store_true", help="show trainers and twins, then stop")
    parser.add_argument(
        "--check", action="store_true", help="try all trainers (or --trainer X) on fake data"
    )
    parser.add_argument(
        "--fast", action="store_true", help="encode shared prompt tokens once, if that is exact"
    )
    own, rest = parser.parse_known_args(argv)
    script = prepared_script(own.script, own.fast)
    if own.list:
        from tabulate import tabulate

        from coop_cmp.checkout.twins import twins

        offered = twins(import_script(script)[1])
        print(tabulate(offered.items(), headers=["trainer", "with the penalty"]))
    elif own.check:
        from coop_cmp.checkout.check import check

        parser = argparse.ArgumentParser(prog="python -m coop_cmp --check", allow_abbrev=False)
        parser.add_argument("--trainer", help="only this one")
        parser.add_argument("opts", nargs="*", help="settings to change: KEY VALUE ...")
        given = parser.parse_args(rest)
        for name, twin, fast in check(script, given.trainer, given.opts):
            print(f"{name}: {twin}", *([f"  --fast: {fast}"] if fast else []), sep="\n", flush=True)
    else:
        from coop_cmp.checkout.plugin import hide_twins

        sys.argv = [own.script, *hide_twins(rest)]
        run_script(script)
    return 0


if __name__ == "__main__":
    sys.exit(handled(main))
