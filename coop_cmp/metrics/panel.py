"""The metrics as functions of predictions and labels, one by one or in one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from coop_cmp.errors import UserError
from coop_cmp.metrics.bins import Closed, ReliabilityBins, check_bins
from coop_cmp.metrics.records import METRICS, check_keys
from coop_cmp.metrics.samples import Samples, Scores
from coop_cmp.metrics.weighted import Weighted


def calibration_report(
    probs: Any,
    labels: Any,
    n_bins: int = 10,
    closed: Closed = "right",
    *,
    from_logits: bool = False,
    scores: Scores = "softmax",
    keys: Iterable[str] | None = None,
) -> dict[str, float]:
    """Compute the metrics of one set of predictions, as fractions where they are shares.

    Args:
        probs: Probabilities, or logits with ``from_logits``, [N, C].
        labels: Class indices [N].
        n_bins: Bins of every binned metric.
        closed: Which end of an equal-width bin belongs to it; 0 and 1 are always counted.
        from_logits: Whether ``probs`` holds logits.
        scores: What makes probabilities of logits; see :class:`Samples`.
        keys: The metrics to compute; by default all but the three that rank the probabilities of
            every class and take most of the time.

    Returns:
        Values by metric name, in the order of the names. ``auroc`` is NaN if all predictions are
        correct or all are wrong.

    Example:
        >>> import torch
        >>> probs, labels = torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1])
        >>> round(calibration_report(probs, labels)["ece"], 4)
        0.4
    """
    return measure(Samples(probs, labels, from_logits, scores), keys, n_bins, closed)


def measure(
    samples: Samples,
    keys: Iterable[str] | None = None,
    n_bins: int = 10,
    closed: Closed = "right",
) -> dict[str, float]:
    """Compute metrics of samples; see :func:`calibration_report`.

    Those of a distribution are refused for sigmoid scores, and NaN where none is asked for by name.
    """
    check_bins(n_bins, closed)
    names = check_keys(keys)
    undefined = [name for name in names if METRICS[name].undefined(samples)]
    if undefined and keys is not None:
        raise UserError(
            f"{', '.join(undefined)}: undefined for sigmoid scores, which do not sum to 1"
        )
    weighted = Weighted(samples, n_bins, closed)
    return {name: METRICS[name].values(weighted).item() for name in names}


def reliability_bins(
    probs: Any,
    labels: Any,
    n_bins: int = 10,
    closed: Closed = "right",
    *,
    equal_mass: bool = False,
    from_logits: bool = False,
) -> ReliabilityBins:
    """Return the bins of the predicted class's confidence as data.

    Args:
        probs: Probabilities, or logits with ``from_logits``, [N, C].
        labels: Class indices [N].
        n_bins: How many bins.
        closed: Which end of an equal-width bin belongs to it.
        equal_mass: Bins with as many samples each, instead of equally wide ones.
        from_logits: Whether ``probs`` holds logits.
    """
    check_bins(n_bins, closed)
    weighted = Weighted(Samples(probs, labels, from_logits), n_bins, closed)
    return (weighted.mass_bins if equal_mass else weighted.width_bins)[0]


_ARGUMENTS = """

Args:
    probs: Probabilities, or logits with ``from_logits``, [N, C].
    labels: Class indices [N].
    n_bins: Bins, for metrics that have any.
    closed: Which end of an equal-width bin belongs to it.
    from_logits: Whether ``probs`` holds logits.
"""


@cache
def function_of(name: str) -> Callable[..., float]:
    """Return a metric as a function of predictions [N, C] and labels [N]."""

    def function(
        probs: Any,
        labels: Any,
        n_bins: int = 10,
        closed: Closed = "right",
        *,
        from_logits: bool = False,
    ) -> float:
        options: dict[str, Any] = {"from_logits": from_logits, "keys": [name]}
        return calibration_report(probs, labels, n_bins, closed, **options)[name]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = METRICS[name].text + _ARGUMENTS
    return function
