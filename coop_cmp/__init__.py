"""The confidence misalignment penalty for CLIP prompt learning, and calibration measures."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coop_cmp.checkout.scope import CMPenalty, TermScope
    from coop_cmp.checkout.twins import add_term_config, plug
    from coop_cmp.losses.cmp import cmp_loss
    from coop_cmp.predict.predictor import load

__version__ = "0.2.0"

# Installed, trainers, datasets and configs lie in the package; in a clone they lie beside it.
_HERE = Path(__file__).resolve().parent
INSTALLED = (_HERE / "configs").is_dir()
CONFIGS = (_HERE if INSTALLED else _HERE.parent) / "configs"
if not INSTALLED:
    __path__.append(str(_HERE.parent))
if find_spec("dassl") is None:
    sys.path.append(str(_HERE / "engine"))

__all__ = [
    "CMPenalty",
    "TermScope",
    "add_term_config",
    "cmp_loss",
    "load",
    "plug",
]
_HOMES = {
    "CMPenalty": "coop_cmp.checkout.scope",
    "TermScope": "coop_cmp.checkout.scope",
    "cmp_loss": "coop_cmp.losses.cmp",
    "load": "coop_cmp.predict.predictor",
}


def __dir__() -> list[str]:
    return [*__all__, "losses", "metrics", "calibrate", "runs", "__version__"]


def __getattr__(name: str) -> Any:
    # Sweeps and tables work without torch, which takes seconds to load: import it on demand.
    if name in ("losses", "metrics", "calibrate", "runs"):
        return import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "coop_cmp.checkout.twins")), name)
