"""Run the training script of any CoOp-family checkout with the penalty: ``python -m coop_cmp``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from coop_cmp.checkout.runner import found_script, import_script, is_own, run_script
from coop_cmp.errors import handled

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
    parser.add_argument(
        "--list", action="store_true", help="show trainers and their CMP variants, then stop"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="try all trainers (or --trainer X) on fake weights and data; exit code 1 if one fails",
    )
    parser.add_argument(
        "--fast", action="store_true", help="encode shared prompt tokens once, if that is exact"
    )
    own, rest = parser.parse_known_args(argv)
    script = found_script(own.script)
    if own.check:
        from coop_cmp.checkout.check import check

        trainer = argparse.ArgumentParser(allow_abbrev=False)
        trainer.add_argument("--trainer", default="")
        only, rest = trainer.parse_known_args(rest)
        works = True
        for verdict in check(script, only.trainer, rest):
            works &= verdict.works
            print(verdict, flush=True)
        return 0 if works else 1
    if not is_own(script):
        from coop_cmp.checkout.plugin import hide_twins, prepare

        prepare(own.fast)
        rest = hide_twins(rest)
    if own.list:
        from tabulate import tabulate

        from coop_cmp.checkout.twins import twins

        offered = twins(import_script(script))
        print(tabulate(offered.items(), headers=["trainer", "with the penalty"]))
    else:
        sys.argv = [own.script, *rest]
        run_script(script)
    return 0


if __name__ == "__main__":
    sys.exit(handled(main))
