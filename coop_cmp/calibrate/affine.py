"""Vector scaling: Guo et al., "On Calibration of Modern Neural Networks", ICML 2017.

Dirichlet calibration: Kull et al., "Beyond temperature scaling: Obtaining well-calibrated
multiclass probabilities with Dirichlet calibration", NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from coop_cmp.calibrate.checks import check_logits, check_values, same_classes
from coop_cmp.errors import UserError

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
FOLDS = 5
LARGEST = 1e9  # factor or offset


@dataclass(frozen=True)
class Affine:
    """``W z + b``, with W [C, C], or [C] if it is diagonal, and b [C]."""

    weight: np.ndarray
    bias: np.ndarray
    labels: int
    strength: float = 0.0
    of_log_probabilities: bool = False

    def __post_init__(self) -> None:
        check_values("factors", self.weight, -LARGEST, LARGEST, dims=self.weight.ndim)
        check_values("offsets", self.bias, -LARGEST, LARGEST)
        if self.weight.shape not in (self.bias.shape, 2 * self.bias.shape):
            raise UserError(f"factors {self.weight.shape} do not fit offsets {self.bias.shape}")

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Calibrated logits [N, C]; predictions may change."""
        logits = same_classes(len(self.bias), logits)
        if self.of_log_probabilities:
            logits = log_softmax(logits, axis=1)
        product = logits * self.weight if self.weight.ndim == 1 else logits @ self.weight.T
        return product + self.bias


def fit_vector(logits: np.ndarray, labels: np.ndarray) -> Affine:
    """Vector scaling: a factor and an offset for each class, by maximum likelihood."""
    logits, labels = check_logits(logits, labels)
    n_classes = logits.shape[1]

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        factors, offsets = values[:n_classes], values[n_classes:]
        loss, slope = _likelihood(logits * factors + offsets, labels)
        return loss, np.concatenate([(slope * logits).sum(0), slope.sum(0)])

    start = np.concatenate([np.ones(n_classes), np.zeros(n_classes)])
    values = _minimise(objective, start)
    return Affine(values[:n_classes], values[n_classes:], len(labels))


def fit_dirichlet(logits: np.ndarray, labels: np.ndarray, strength: float | None = None) -> Affine:
    """Dirichlet calibration: ``W log p + b`` with the off-diagonal and intercept regulariser.

    To the mean negative log-likelihood are added ``strength`` times the mean square of W off its
    diagonal and of b (ODIR, with equal weights).

    Args:
        logits: Shape [N, C].
        labels: Shape [N].
        strength: Of the regulariser; None for the best of 0.001 to 10 in five-fold
            cross-validation on these samples.
    """
    logits, labels = check_logits(logits, labels)
    log_p = log_softmax(logits, axis=1)
    if strength is None:
        losses = [_left_out_loss(log_p, labels, value) for value in STRENGTHS]
        strength = STRENGTHS[int(np.argmin(losses))]
    weight, bias = _fit_odir(log_p, labels, strength)
    return Affine(weight, bias, len(labels), strength, of_log_probabilities=True)


def _fit_odir(
    log_p: np.ndarray, labels: np.ndarray, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    n_classes = log_p.shape[1]
    off_diagonal = 1 - np.eye(n_classes)
    pairs = max(1, n_classes * (n_classes - 1))

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = values[:-n_classes].reshape(n_classes, n_classes), values[-n_classes:]
        loss, slope = _likelihood(log_p @ weight.T + bias, labels)
        off = weight * off_diagonal
        loss += strength * ((off**2).sum() / pairs + (bias**2).mean())
        weight_slope = slope.T @ log_p + 2 * strength * off / pairs
        bias_slope = slope.sum(0) + 2 * strength * bias / n_classes
        return loss, np.concatenate([weight_slope.ravel(), bias_slope])

    start = np.concatenate([np.eye(n_classes).ravel(), np.zeros(n_classes)])
    values = _minimise(objective, start)
    return values[:-n_classes].reshape(n_classes, n_classes), values[-n_classes:]


def _left_out_loss(log_p: np.ndarray, labels: np.ndarray, strength: float) -> float:
    folds = np.random.default_rng(0).permutation(len(labels)) % FOLDS
    total = 0.0
    for fold in range(min(FOLDS, len(labels))):
        kept, out = folds != fold, folds == fold
        if not kept.any():
            continue
        weight, bias = _fit_odir(log_p[kept], labels[kept], strength)
        total += _likelihood(log_p[out] @ weight.T + bias, labels[out])[0] * out.sum()
    return total / len(labels)


def _likelihood(logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean negative log-likelihood and its slope [N, C] in the logits."""
    rows = np.arange(len(labels))
    loss = -log_softmax(logits, axis=1)[rows, labels].mean()
    slope = softmax(logits, axis=1)
    slope[rows, labels] -= 1
    return float(loss), slope / len(labels)


def _minimise(objective: object, start: np.ndarray) -> np.ndarray:
    options = {"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-8}
    return minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x  # type: ignore[call-overload]
