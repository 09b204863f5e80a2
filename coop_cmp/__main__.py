"""Run the training script of any CoOp-family checkout with the penalty: ``python -m coop_cmp``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from coop_cmp.checkout.script import import_script, run_script
from coop_cmp.errors import UserError

DESCRIPTION = """\
Run the training script of a CoOp-family checkout (CoOp, MaPLe, KgCoOp, ...) with the confidence
misalignment penalty and calibration metrics. Call it inside the checkout with the arguments of its
own train.py; --trainer X_CMP trains X with the penalty:

  python -m coop_cmp --trainer CoOp_CMP --root DATA --config-file ... TRAINER.CMP.LAMBDA 0.01
"""


def main(argv: list[str] | None = None) -> None:
    """Entry point; a user's mistake is one line on stderr and exit code 2."""
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
    try:
        script = _ready(own.script, own.fast)
        if own.list:
            _show_trainers(script)
        elif own.check:
            _check_trainers(script, rest)
        else:
            from coop_cmp.checkout.plugin import hide_twins

            sys.argv = [own.script, *hide_twins(rest)]
            run_script(script)
    except UserError as error:
        print(f"coop_cmp: {error}", file=sys.stderr)
        sys.exit(2)


def _ready(name: str, fast: bool) -> Path:
    """Find the script, put its checkout first on the path and ready Dassl."""
    script = Path(name).resolve()
    if not script.is_file():
        raise UserError(
            f"there is no {name} in {Path.cwd()}; run this inside a CoOp-family checkout, or name "
            "its training script with --script PATH"
        )
    sys.path[:0] = [str(script.parent), str(Path.cwd())]
    try:
        import dassl.engine  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "dassl":
            raise UserError(f"Dassl needs a package that is not installed: {error}") from None
        raise UserError(
            f"Dassl cannot be imported ({error}); install github.com/KaiyangZhou/Dassl.pytorch, or "
            "the engine of coop-cmp: pip install ./engine"
        ) from None
    from coop_cmp.checkout.plugin import prepare

    prepare(fast)
    return script


def _show_trainers(script: Path) -> None:
    from tabulate import tabulate

    from coop_cmp.checkout.plugin import twins

    offered = twins(import_script(script)[1])
    print(tabulate(offered.items(), headers=["trainer", "with the penalty"]))


def _check_trainers(script: Path, arguments: list[str]) -> None:
    from coop_cmp.checkout.check import check

    parser = argparse.ArgumentParser(prog="python -m coop_cmp --check", allow_abbrev=False)
    parser.add_argument("--trainer", help="only this one")
    parser.add_argument("opts", nargs="*", help="settings to change: KEY VALUE ...")
    given = parser.parse_args(arguments)
    for name, twin, fast in check(script, given.trainer, given.opts):
        print(f"{name}: {twin}", *([f"  --fast: {fast}"] if fast else []), sep="\n", flush=True)


if __name__ == "__main__":
    main()
