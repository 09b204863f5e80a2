"""Temperature scaling: Guo et al., "On Calibration of Modern Neural Networks", ICML 2017."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from coop_cmp.calibrate.checks import check_logits
from coop_cmp.errors import UserError

PRIOR = 0.2  # standard deviation of log T before any label is seen, for "map"
LOWEST, HIGHEST = 1e-9, 1e9  # a fit ends inside
STEPS = 60
TOLERANCE = 1e-10


@dataclass(frozen=True)
class Temperature:
    """A temperature and how sure it is.

    Attributes:
        value: T; logits are divided by it.
        error: Standard error of log T: T is known to about this share of itself. 0 if T was given.
        labels: How many labelled samples it took.
    """

    value: float
    error: float = 0.0
    labels: int = 0

    def __post_init__(self) -> None:
        if not LOWEST <= self.value <= HIGHEST:
            raise UserError(
                f"a temperature must be a number from {LOWEST:g} to {HIGHEST:g}, got {self.value}"
            )

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """The logits [N, C] divided by T; what is predicted does not change."""
        return np.asarray(logits) / self.value


def fit_temperature(
    logits: np.ndarray, labels: np.ndarray, prior: float | None = None
) -> Temperature:
    """The T that minimises the negative log-likelihood of ``softmax(z / T)``.

    It is convex in ``b = 1 / T``; Newton's steps in log T, kept inside a bracket, end after a few.
    With a prior, ``log(T)^2 / (2 prior^2)`` is added to the sum over the samples, which holds T
    near 1 where labels are few.

    Args:
        logits: Shape [N, C].
        labels: Shape [N].
        prior: Standard deviation of log T; None for maximum likelihood.

    Raises:
        UserError: The optimum is at 0 or infinity: all samples are correct, as training samples
            are, or the logits say nothing about the labels.
    """
    logits, labels = check_logits(logits, labels)
    shifted = logits - logits[np.arange(len(labels)), labels][:, None]  # z - z_y
    if prior is None:
        _refuse_without_optimum(shifted)
    low, high, log_beta = -20.0, 20.0, 0.0
    for _ in range(STEPS):
        slope, curvature = _derivatives(shifted, log_beta, prior)
        low, high = (log_beta, high) if slope < 0 else (low, log_beta)
        step = log_beta - slope / curvature if curvature > 0 else math.inf
        following = step if low < step < high else (low + high) / 2
        moved, log_beta = abs(following - log_beta), following
        if moved < TOLERANCE:
            break
    _, curvature = _derivatives(shifted, log_beta, prior)
    return Temperature(math.exp(-log_beta), 1 / math.sqrt(max(curvature, 1e-300)), len(labels))


def _derivatives(shifted: np.ndarray, log_beta: float, prior: float | None) -> tuple[float, float]:
    """First and second derivative of the objective in log b."""
    beta = math.exp(log_beta)
    weights = softmax(beta * shifted, axis=1)
    mean = (weights * shifted).sum(1)
    spread = (weights * shifted**2).sum(1) - mean**2
    slope = beta * mean.sum()
    curvature = slope + beta**2 * spread.sum()
    if prior is None:
        return slope, curvature
    return slope + log_beta / prior**2, curvature + 1 / prior**2


def _refuse_without_optimum(shifted: np.ndarray) -> None:
    if (shifted.max(1) <= 0).all():
        raise UserError(
            f"all {len(shifted)} labelled samples are classified correctly, so T would run to 0; "
            "fit on samples the model was not trained on, more of them, or with a prior (map)"
        )
    if shifted.mean() >= 0:
        raise UserError(
            f"on the {len(shifted)} labelled samples the logits are no better than chance, so T "
            "would run to infinity"
        )
