"""The confidence misalignment penalty for CLIP prompt learning, and calibration measures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coop_cmp.losses.cmp import cmp_loss
    from coop_cmp.penalty import (
        CMPenalty,
        CMPMixin,
        add_cmp_config,
        add_term_config,
        penalty_logits,
        plug,
    )
    from coop_cmp.predictor import load
    from coop_cmp.scope import TermScope

__version__ = "0.1.0"

__all__ = [
    "CMPMixin",
    "CMPenalty",
    "TermScope",
    "add_cmp_config",
    "add_term_config",
    "cmp_loss",
    "load",
    "penalty_logits",
    "plug",
]
_HOMES = {
    "TermScope": "coop_cmp.scope",
    "cmp_loss": "coop_cmp.losses.cmp",
    "load": "coop_cmp.predictor",
}


def __dir__() -> list[str]:
    return [*__all__, "losses", "metrics", "posthoc", "results", "__version__"]


def __getattr__(name: str) -> Any:
    # Sweeps and tables work without torch, which takes seconds to load: import it on demand.
    if name in ("losses", "metrics", "posthoc", "results"):
        return import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "coop_cmp.penalty")), name)
