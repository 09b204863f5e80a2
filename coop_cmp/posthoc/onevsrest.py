"""Histogram binning and isotonic regression, class by class: Zadrozny and Elkan, "Transforming
Classifier Scores into Accurate Multiclass Probability Estimates", KDD 2002.

Each class is calibrated against all others, and the results are divided by their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from coop_cmp.errors import UserError
from coop_cmp.posthoc.checks import check_logits, same_classes

SMALLEST = 1e-12  # a probability of 0 has no logarithm
Curve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class OneVsRest:
    """A curve for each class, from its probability to a calibrated one."""

    curves: tuple[Curve, ...]
    labels: int

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logarithms [N, C] of the calibrated probabilities; predictions may change.

        A sample to which no class is left keeps its own probabilities.
        """
        before = softmax(same_classes(len(self.curves), logits), axis=1)
        columns = [curve(before[:, k]) for k, curve in enumerate(self.curves)]
        after = np.stack(columns, axis=1)
        total = after.sum(1, keepdims=True)
        after = np.where(total > 0, after / np.where(total > 0, total, 1), before)
        return np.log(after.clip(min=SMALLEST))


def fit_histogram(logits: np.ndarray, labels: np.ndarray, n_bins: int = 10) -> OneVsRest:
    """Histogram binning: in each of some equal bins, the share of the class among its samples.

    A bin without samples keeps the probabilities that fall into it.

    Args:
        logits: Shape [N, C].
        labels: Shape [N].
        n_bins: Of equal width, [low, high), the last one closed.
    """
    if isinstance(n_bins, bool) or not isinstance(n_bins, int) or n_bins < 1:
        raise UserError(f"n_bins must be a whole number from 1, got {n_bins!r}")

    def curve(probability: np.ndarray, is_class: np.ndarray) -> Curve:
        counts = np.bincount(_bin(probability, n_bins), minlength=n_bins)
        hits = np.bincount(_bin(probability, n_bins), is_class, n_bins)
        share = hits / np.maximum(counts, 1)
        return lambda p: np.where(counts[_bin(p, n_bins)] > 0, share[_bin(p, n_bins)], p)

    return _fit(logits, labels, curve)


def fit_isotonic(logits: np.ndarray, labels: np.ndarray) -> OneVsRest:
    """Isotonic regression: the best curve that never falls, by scikit-learn.

    Args:
        logits: Shape [N, C].
        labels: Shape [N].
    """
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError as error:
        raise UserError("isotonic needs scikit-learn: pip install scikit-learn") from error

    def curve(probability: np.ndarray, is_class: np.ndarray) -> Curve:
        model = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        return model.fit(probability, is_class).predict

    return _fit(logits, labels, curve)


def _fit(
    logits: np.ndarray, labels: np.ndarray, curve: Callable[[np.ndarray, np.ndarray], Curve]
) -> OneVsRest:
    logits, labels = check_logits(logits, labels)
    probabilities = softmax(logits, axis=1)
    classes = range(logits.shape[1])
    curves = [curve(probabilities[:, k], (labels == k).astype(float)) for k in classes]
    return OneVsRest(tuple(curves), len(labels))


def _bin(probability: np.ndarray, n_bins: int) -> np.ndarray:
    return np.minimum((probability * n_bins).astype(int), n_bins - 1)
