"""Calibration metrics of classifiers, on torch alone.

Each metric is called as ``metric(probs, labels, n_bins=10, closed="right", from_logits=False)``
of predictions [N, C] and class indices [N]; :func:`calibration_report` gives all of them at once.
Formulas and conventions: docs/calibration.md.
"""

from coop_cmp.metrics.bins import ReliabilityBins, convention
from coop_cmp.metrics.bootstrap import Interval, bootstrap
from coop_cmp.metrics.panel import (
    METRICS,
    calibration_report,
    metric,
    reliability_bins,
    show,
)
from coop_cmp.metrics.samples import Samples

accuracy = metric("accuracy")
confidence = metric("confidence")
gap = metric("gap")
ece = metric("ece")
mce = metric("mce")
weighted_mce = metric("weighted_mce")
rmsce = metric("rmsce")
average_ce = metric("average_ce")
ace = metric("ace")
debiased_l2 = metric("debiased_l2")
ks = metric("ks")
smooth_ece = metric("smooth_ece")
nll = metric("nll")
perplexity = metric("perplexity")
brier = metric("brier")
aurc = metric("aurc")
auroc = metric("auroc")
risk_at_80 = metric("risk_at_80")
sharpness = metric("sharpness")
entropy = metric("entropy")
classwise_ece = metric("classwise_ece")
ace_nixon = metric("ace_nixon")
tace = metric("tace")

__all__ = [
    "METRICS",
    "Interval",
    "ReliabilityBins",
    "Samples",
    "bootstrap",
    "calibration_report",
    "convention",
    "reliability_bins",
    "show",
    *METRICS,
]
