"""Run the training script of any CoOp-family checkout with the penalty: ``python -m coop_cmp``."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

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
        "--fast", action="store_true", help="encode shared prompt tokens once, if that is exact"
    )
    own, rest = parser.parse_known_args(argv)
    try:
        script = _ready(own.script, own.fast)
        if own.list:
            _show_trainers(script)
        else:
            from coop_cmp.plugin import hide_twins

            sys.argv = [own.script, *hide_twins(rest)]
            run_script(script, "__main__")
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
    from coop_cmp.plugin import prepare

    prepare(fast)
    return script


def run_script(script: Path, name: str) -> dict[str, Any]:
    """Run a training script as the module ``name``; its names.

    Raises:
        UserError: a package is missing; or, unless the script runs as ``__main__`` and its own
            traceback says more, it cannot be imported for any other reason.
    """
    try:
        return runpy.run_path(str(script), run_name=name)
    except ModuleNotFoundError as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"{script.name} needs a module that is not there: {error} ({place.filename}, line "
            f"{place.lineno}); {_remedy(error.name or '')}"
        ) from None
    except Exception as error:
        if name == "__main__":
            raise
        raise UserError(f"{script.name} cannot be imported: {describe(error)}") from None


def describe(error: BaseException) -> str:
    """An error and where it was raised, in one line."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text} ({place.filename}, line {place.lineno})"


def _remedy(module: str) -> str:
    package = module.partition(".")[0]
    if package == "dassl":
        import dassl

        return f"the Dassl in {Path(dassl.__path__[0]).parent} is another version than it expects"
    return f"install it as the checkout's README says (perhaps: pip install {package})"


def _show_trainers(script: Path) -> None:
    from dassl.engine import TRAINER_REGISTRY
    from tabulate import tabulate

    from coop_cmp.plugin import twins

    before = TRAINER_REGISTRY.registered_names()
    run_script(script, "imported")  # its imports register the trainers
    every = TRAINER_REGISTRY.registered_names()
    # Upstream Dassl brings twenty trainers of its own, which a checkout's users do not look for.
    offered = [name for name in every if name not in before] or every
    print(tabulate(twins(offered).items(), headers=["trainer", "with the penalty"]))


if __name__ == "__main__":
    main()
