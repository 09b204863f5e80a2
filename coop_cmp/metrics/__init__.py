"""Calibration metrics of classifiers, on torch alone.

Each metric is called as ``metric(probs, labels, n_bins=10, closed="right", from_logits=False)``
of predictions [N, C] and class indices [N]; :func:`calibration_report` gives all of them at once.
Formulas and conventions: docs/calibration.md.
"""

from coop_cmp.metrics.bins import ReliabilityBins, convention
from coop_cmp.metrics.bootstrap import Interval, bootstrap
from coop_cmp.metrics.panel import (
    METRICS,
    Metric,
    calibration_report,
    reliability_bins,
    show,
)
from coop_cmp.metrics.samples import Samples
from coop_cmp.metrics.streaming import StreamingCalibration

accuracy = Metric("accuracy")
confidence = Metric("confidence")
gap = Metric("gap")
ece = Metric("ece")
mce = Metric("mce")
weighted_mce = Metric("weighted_mce")
rmsce = Metric("rmsce")
average_ce = Metric("average_ce")
ace = Metric("ace")
debiased_l2 = Metric("debiased_l2")
ks = Metric("ks")
smooth_ece = Metric("smooth_ece")
nll = Metric("nll")
perplexity = Metric("perplexity")
brier = Metric("brier")
aurc = Metric("aurc")
auroc = Metric("auroc")
risk_at_80 = Metric("risk_at_80")
sharpness = Metric("sharpness")
entropy = Metric("entropy")
classwise_ece = Metric("classwise_ece")
ace_nixon = Metric("ace_nixon")
tace = Metric("tace")

__all__ = [
    "METRICS",
    "Interval",
    "ReliabilityBins",
    "Samples",
    "StreamingCalibration",
    "bootstrap",
    "calibration_report",
    "convention",
    "reliability_bins",
    "show",
    *METRICS,
]
