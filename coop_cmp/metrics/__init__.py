"""Calibration metrics of classifiers, on torch alone.

Each metric is called as ``metric(probs, labels, n_bins=10, closed="right", from_logits=False)``
of predictions [N, C] and class indices [N]; :func:`calibration_report` gives all of them at once.
Formulas and conventions: docs/calibration.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coop_cmp.metrics.records import METRICS, Metric, register

if TYPE_CHECKING:
    from coop_cmp.metrics.bins import ReliabilityBins, convention
    from coop_cmp.metrics.panel import calibration_report, reliability_bins
    from coop_cmp.metrics.resample import Interval, bootstrap
    from coop_cmp.metrics.samples import Samples
    from coop_cmp.metrics.weighted import Weighted

_HOMES = {
    "Interval": "resample",
    "ReliabilityBins": "bins",
    "Samples": "samples",
    "Weighted": "weighted",
    "bootstrap": "resample",
    "calibration_report": "panel",
    "convention": "bins",
    "reliability_bins": "panel",
}
__all__ = [
    "METRICS",
    "Interval",
    "Metric",
    "ReliabilityBins",
    "Samples",
    "Weighted",
    "bootstrap",
    "calibration_report",
    "convention",
    "register",
    "reliability_bins",
]


def __getattr__(name: str) -> Any:
    # The records are read where torch, which takes seconds to load, is not needed.
    if name in METRICS:
        return import_module(f"{__name__}.panel").function_of(name)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *METRICS})
