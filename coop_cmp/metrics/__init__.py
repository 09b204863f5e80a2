"""Calibration metrics of classifiers, on torch alone.

Each metric is a function ``metric(probs, labels, n_bins=10, closed="right", from_logits=False)``
of predictions [N, C] and class indices [N]; :func:`calibration_report` gives all of them at once.
Formulas and conventions: docs/calibration.md.
"""

from coop_cmp.metrics.bins import ReliabilityBins, convention
from coop_cmp.metrics.bootstrap import Interval, bootstrap
from coop_cmp.metrics.panel import (
    METRICS,
    calibration_report,
    named_metric,
    reliability_bins,
    show,
)
from coop_cmp.metrics.samples import Samples
from coop_cmp.metrics.streaming import StreamingCalibration

accuracy = named_metric("accuracy")
confidence = named_metric("confidence")
gap = named_metric("gap")
ece = named_metric("ece")
mce = named_metric("mce")
weighted_mce = named_metric("weighted_mce")
rmsce = named_metric("rmsce")
average_ce = named_metric("average_ce")
ace = named_metric("ace")
debiased_l2 = named_metric("debiased_l2")
ks = named_metric("ks")
smooth_ece = named_metric("smooth_ece")
nll = named_metric("nll")
perplexity = named_metric("perplexity")
brier = named_metric("brier")
aurc = named_metric("aurc")
auroc = named_metric("auroc")
risk_at_80 = named_metric("risk_at_80")
sharpness = named_metric("sharpness")
entropy = named_metric("entropy")
classwise_ece = named_metric("classwise_ece")
ace_nixon = named_metric("ace_nixon")
tace = named_metric("tace")

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
