"""Every metric by name: the functions people call, and all of them in one report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from coop_cmp.errors import UserError, closest
from coop_cmp.metrics import classwise, ranked
from coop_cmp.metrics.bins import Closed, ReliabilityBins, check_bins, mass_bins, width_bins
from coop_cmp.metrics.samples import Samples

MetricOnSamples = Callable[[Samples, int, Closed], float]

TACE_THRESHOLD = 1e-3


def perplexity_of(nll: float) -> float:
    """exp(nll); near the largest float instead of infinity, for a diverged model is stored too."""
    return math.exp(min(nll, 709.0))


def _classwise_ece(samples: Samples, n_bins: int, closed: Closed) -> float:
    residuals = classwise.class_residuals(samples, n_bins, closed)
    return classwise.per_class_ece(residuals, len(samples)).mean().item()


METRICS: dict[str, MetricOnSamples] = {
    "accuracy": lambda s, n, c: s.correct.mean().item(),
    "confidence": lambda s, n, c: s.confidence.mean().item(),
    "gap": lambda s, n, c: (s.confidence - s.correct).mean().item(),
    "ece": lambda s, n, c: width_bins(s, n, c).ece,
    "mce": lambda s, n, c: width_bins(s, n, c).mce,
    "weighted_mce": lambda s, n, c: width_bins(s, n, c).weighted_mce,
    "rmsce": lambda s, n, c: width_bins(s, n, c).rmsce,
    "average_ce": lambda s, n, c: width_bins(s, n, c).average_ce,
    "ace": lambda s, n, c: mass_bins(s, n).ece,
    "debiased_l2": lambda s, n, c: mass_bins(s, n).debiased_l2,
    "ks": lambda s, n, c: ranked.ks_error(s),
    "smooth_ece": lambda s, n, c: ranked.smooth_calibration_error(s),
    "nll": lambda s, n, c: s.nll.mean().item(),
    "perplexity": lambda s, n, c: perplexity_of(s.nll.mean().item()),
    "brier": lambda s, n, c: s.spread[0].mean().item(),
    "aurc": lambda s, n, c: ranked.area_under_risk_coverage(s),
    "auroc": lambda s, n, c: ranked.correctness_auroc(s),
    "risk_at_80": lambda s, n, c: ranked.risk_at_coverage(s, 0.8),
    "sharpness": lambda s, n, c: s.n_classes * s.confidence.mean().item(),
    "entropy": lambda s, n, c: s.spread[1].mean().item(),
    "classwise_ece": _classwise_ece,
    "ace_nixon": lambda s, n, c: classwise.range_error(s, n),
    "tace": lambda s, n, c: classwise.range_error(s, n, TACE_THRESHOLD),
}

# These read the whole matrix of probabilities, where the others need a few numbers per sample.
CLASS_METRICS = ("classwise_ece", "ace_nixon", "tace")
TOP_LABEL = tuple(name for name in METRICS if name not in CLASS_METRICS)
# What is not a share of one and is therefore never shown in percent.
NOT_PERCENT = ("nll", "perplexity", "brier", "sharpness", "entropy")


def show(key: str, value: float, signed: bool = False) -> str:
    """A metric as people read it: percent with two decimals, or the plain number."""
    if math.isnan(value):
        return "undefined"
    sign = "+" if signed else ""
    return f"{value:{sign}.4f}" if key in NOT_PERCENT else f"{100 * value:{sign}.2f}%"


def check_keys(keys: Iterable[str] | None) -> list[str]:
    """The metric names asked for, :data:`TOP_LABEL` for None; an unknown one is refused."""
    names = list(TOP_LABEL) if keys is None else list(keys)
    for name in names:
        if name not in METRICS:
            raise UserError(
                f'metric: there is no "{name}"{closest(name, METRICS)}; choose from '
                f"{', '.join(METRICS)}"
            )
    return names


def calibration_report(
    probs: Any,
    labels: Any,
    n_bins: int = 10,
    closed: Closed = "right",
    *,
    from_logits: bool = False,
    keys: Iterable[str] | None = None,
) -> dict[str, float]:
    """The metrics of one set of predictions, as fractions where they are shares.

    Args:
        probs: Probabilities, or logits with ``from_logits``, [N, C].
        labels: Class indices [N].
        n_bins: Bins of every binned metric.
        closed: Which end of an equal-width bin belongs to it; 0 and 1 are always counted.
        from_logits: Whether ``probs`` holds logits.
        keys: The metrics to compute; by default :data:`TOP_LABEL`, all but the three that rank the
            probabilities of every class and take most of the time.

    Returns:
        Values by metric name, in the order of the names. ``auroc`` is NaN if all predictions are
        correct or all are wrong.

    Example:
        >>> import torch
        >>> probs, labels = torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1])
        >>> round(calibration_report(probs, labels)["ece"], 4)
        0.4
    """
    check_bins(n_bins, closed)
    return measure(Samples(probs, labels, from_logits), check_keys(keys), n_bins, closed)


def measure(
    samples: Samples, names: Iterable[str], n_bins: int = 10, closed: Closed = "right"
) -> dict[str, float]:
    """The named metrics of samples that were checked before."""
    return {name: METRICS[name](samples, n_bins, closed) for name in names}


def reliability_bins(
    probs: Any,
    labels: Any,
    n_bins: int = 10,
    closed: Closed = "right",
    *,
    equal_mass: bool = False,
    from_logits: bool = False,
) -> ReliabilityBins:
    """The bins of the predicted class's confidence as data.

    Args:
        probs: Probabilities, or logits with ``from_logits``, [N, C].
        labels: Class indices [N].
        n_bins: How many bins.
        closed: Which end of an equal-width bin belongs to it.
        equal_mass: Bins with as many samples each, instead of equally wide ones.
        from_logits: Whether ``probs`` holds logits.
    """
    check_bins(n_bins, closed)
    samples = Samples(probs, labels, from_logits)
    return mass_bins(samples, n_bins) if equal_mass else width_bins(samples, n_bins, closed)


MEANINGS = {
    "accuracy": "The share of correct predictions.",
    "confidence": "The mean probability of the predicted class.",
    "gap": "Mean confidence minus accuracy: above 0 for an overconfident model.",
    "ece": "Expected calibration error: |accuracy - confidence| of equal-width bins, weighted.",
    "mce": "Maximum calibration error: the largest |accuracy - confidence| of a bin.",
    "weighted_mce": "The largest |accuracy - confidence| of a bin times its share of samples.",
    "rmsce": "Root of the weighted mean of squared |accuracy - confidence|.",
    "average_ce": "Mean of |accuracy - confidence| over the bins that hold samples.",
    "ace": "Adaptive calibration error: the same as ece with as many samples in each bin.",
    "debiased_l2": "Squared calibration error in equal-mass bins, without the bias of the plug-in.",
    "ks": "The largest distance of cumulated confidence and correctness (Kolmogorov, Smirnov).",
    "smooth_ece": "Calibration error by kernel smoothing instead of bins.",
    "nll": "Mean negative log-likelihood of the labels, in nats.",
    "perplexity": "exp(nll).",
    "brier": "Mean squared distance of the probabilities from the label.",
    "aurc": "Area under the curve of risk against coverage.",
    "auroc": "How well confidence tells correct from wrong predictions.",
    "risk_at_80": "The error among the 80 % most confident predictions.",
    "sharpness": "The number of classes times the mean confidence.",
    "entropy": "Mean entropy of the probabilities, in nats.",
    "classwise_ece": "Mean over classes of the calibration error of their probabilities.",
    "ace_nixon": "Adaptive calibration error over all classes (Nixon et al.).",
    "tace": "The same, of probabilities above 0.001.",
}
_ARGUMENTS = """

Args:
    probs: Probabilities, or logits with ``from_logits``, [N, C].
    labels: Class indices [N].
    n_bins: Bins, for metrics that have any.
    closed: Which end of an equal-width bin belongs to it.
    from_logits: Whether ``probs`` holds logits.
"""


def metric(key: str) -> Callable[..., float]:
    """One metric as a function of predictions [N, C] and labels [N].

    Args:
        key: Its name in the report.
    """
    check_keys([key])

    def function(
        probs: Any,
        labels: Any,
        n_bins: int = 10,
        closed: Closed = "right",
        *,
        from_logits: bool = False,
    ) -> float:
        options: dict[str, Any] = {"from_logits": from_logits, "keys": [key]}
        return calibration_report(probs, labels, n_bins, closed, **options)[key]

    function.__name__ = function.__qualname__ = key
    function.__doc__ = MEANINGS[key] + _ARGUMENTS
    return function
