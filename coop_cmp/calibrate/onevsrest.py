"""Histogram binning and isotonic regression, class by class: Zadrozny and Elkan, "Transforming
Classifier Scores into Accurate Multiclass Probability Estimates", KDD 2002.

Each class is calibrated against all others, and the results are divided by their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from coop_cmp.calibrate.checks import check_logits, check_values, same_classes
from coop_cmp.errors import UserError

N_BINS = 10
SMALLEST = 1e-12  # a probability of 0 has no logarithm


@dataclass(frozen=True)
class Histogram:
    """For each class and bin of probabilities the calibrated one [C, B]; NaN: as it was."""

    shares: np.ndarray
    labels: int

    def __post_init__(self) -> None:
        check_values("shares", np.nan_to_num(self.shares), 0, 1, dims=2)

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logarithms [N, C] of the calibrated probabilities; predictions may change."""
        before = softmax(same_classes(len(self.shares), logits), axis=1)
        n_classes, n_bins = self.shares.shape
        after = self.shares[np.arange(n_classes), _bin(before, n_bins)]
        return _logarithms(before, np.where(np.isnan(after), before, after))


@dataclass(frozen=True)
class Isotonic:
    """For each class the corners of a rising curve: probabilities [C, K] and calibrated ones."""

    corners: np.ndarray
    heights: np.ndarray
    labels: int

    def __post_init__(self) -> None:
        for name, values in (("corners", self.corners), ("heights", self.heights)):
            check_values(name, values, 0, 1, dims=2)
        if self.corners.shape != self.heights.shape or (np.diff(self.corners) < 0).any():
            raise UserError("a curve needs rising corners, and a height for each of them")

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logarithms [N, C] of the calibrated probabilities; predictions may change."""
        before = softmax(same_classes(len(self.corners), logits), axis=1)
        curves = zip(before.T, self.corners, self.heights, strict=True)
        return _logarithms(before, np.stack([np.interp(*curve) for curve in curves], axis=1))


def fit_histogram(logits: np.ndarray, labels: np.ndarray) -> Histogram:
    """Histogram binning: in each of ten equal bins, the share of the class among its samples.

    Bins are [low, high), the last one closed; one without samples keeps the probabilities that
    fall into it.
    """
    logits, labels = check_logits(logits, labels)
    bins = _bin(softmax(logits, axis=1), N_BINS)
    shares = np.full((logits.shape[1], N_BINS), np.nan)
    for k, row in enumerate(shares):
        counts = np.bincount(bins[:, k], minlength=N_BINS)
        hits = np.bincount(bins[:, k], labels == k, N_BINS)
        np.divide(hits, counts, out=row, where=counts > 0)
    return Histogram(shares, len(labels))


def fit_isotonic(logits: np.ndarray, labels: np.ndarray) -> Isotonic:
    """Isotonic regression: the best curve that never falls, by scikit-learn."""
    from sklearn.isotonic import IsotonicRegression  # slow to load

    logits, labels = check_logits(logits, labels)
    curves = []
    for k, probability in enumerate(softmax(logits, axis=1).T):
        model = IsotonicRegression(y_min=0, y_max=1).fit(probability, (labels == k).astype(float))
        curves.append((model.X_thresholds_, model.y_thresholds_))
    longest = max(len(corners) for corners, _ in curves)
    # The last corner is repeated, beyond which a curve is level anyway.
    corners, heights = (
        np.stack([np.pad(part, (0, longest - len(part)), "edge") for part in parts])
        for parts in zip(*curves, strict=True)
    )
    return Isotonic(corners, heights, len(labels))


def _bin(probability: np.ndarray, n_bins: int) -> np.ndarray:
    return np.minimum((probability * n_bins).astype(int), n_bins - 1)


def _logarithms(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Of probabilities [N, C] divided by their sum; a sample without any keeps those before."""
    total = after.sum(1, keepdims=True)
    after = np.where(total > 0, after / np.where(total > 0, total, 1), before)
    return np.log(after.clip(min=SMALLEST))
