"""Find, run or import a checkout's training script, with errors that name their cause."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

import coop_cmp
from coop_cmp.errors import UserError

# What to install for a module of another name.
PACKAGES = {
    "clip": "git+https://github.com/openai/CLIP.git",
    "cv2": "opencv-python",
    "pkg_resources": '"setuptools<81"',
    "sklearn": "scikit-learn",
}


def is_own(script: Path) -> bool:
    """Whether this is the training script of this project, which needs no preparation."""
    return script == Path(coop_cmp.__file__).parents[1] / "train.py"


def found_script(name: str) -> Path:
    """Find the script and put its checkout first on the path.

    Args:
        name: The script's path, from the current directory.
    """
    script = Path(name).resolve()
    if not script.is_file():
        raise UserError(
            f"there is no {name} in {Path.cwd()}; run this inside a CoOp-family checkout, or name "
            "its training script with --script PATH"
        )
    sys.path[:0] = [str(script.parent), str(Path.cwd())]
    try:
        import dassl.engine.build  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"Dassl: {describe(error)}; {_remedy(error)}") from None
    return script


def run_script(script: Path, name: str = "__main__") -> None:
    """Run a training script as the module ``name``.

    Raises:
        UserError: a module is missing; or, unless the script runs as ``__main__`` and its own
            traceback says more, it cannot be imported for any other reason.
    """
    try:
        runpy.run_path(str(script), run_name=name)
    except ModuleNotFoundError as error:
        raise UserError(f"{script.name}: {describe(error)}; {_remedy(error)}") from None
    except (Exception, SystemExit) as error:
        if name == "__main__":
            raise
        raise UserError(f"{script.name} cannot be imported: {describe(error)}") from None


def import_script(script: Path) -> list[str]:
    """Import a training script; return the trainers that it brings."""
    from dassl.engine import TRAINER_REGISTRY

    before = TRAINER_REGISTRY.registered_names()
    run_script(script, "imported")  # its imports register the trainers
    every = TRAINER_REGISTRY.registered_names()
    # Upstream Dassl brings twenty trainers of its own, which a checkout's users do not look for.
    return [name for name in every if name not in before] or every


def describe(error: BaseException) -> str:
    """Return an error and the checkout's line that it came from, in one line."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
    return f"{text} ({place_of(error)})"


def place_of(error: BaseException) -> str:
    """Return the checkout's line that an error came from."""
    places = traceback.extract_tb(error.__traceback__)
    home = str(Path(__file__).parent)
    theirs = [p for p in places if "site-packages" not in p.filename and home not in p.filename]
    place = (theirs or places)[-1]
    return f"{Path(place.filename).name}, line {place.lineno}"


def _remedy(error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    local = Path(*(error.name or "").split("."))
    for home in sys.path[:2] if "." in (error.name or "") else ():
        if Path(home, local).exists() or Path(home, f"{local}.py").exists():
            place = next(iter(sys.modules[package].__path__))
            return f"{place} stands in its way: install coop_cmp, and take it off PYTHONPATH"
        if Path(home, package).is_dir():
            return f"the checkout lacks {local}.py, which no package brings"
    if package == "dassl":
        import dassl

        return f"the Dassl in {Path(dassl.__path__[0]).parent} is another version than it expects"
    package = PACKAGES.get(package, package)
    return f"install it as the checkout's README says (perhaps: pip install {package})"
