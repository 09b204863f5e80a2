"""Metrics of a run on resampled test images, all resamples at once.

Each image is drawn a number of times that depends on its own name and the replicate's number alone
(a Poisson bootstrap). So every method, seed and test set that shows the same picture sees it drawn
alike, as the four shifts of one test set do.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, factorial

import numpy as np

from coop_cmp.runs.records import Outcomes

REPLICATES = 400  # enough for a variance: its root is then known to 4 %
BINS = 10
METRICS = ("accuracy", "gap", "ece", "ace", "mce", "weighted_mce", "nll")
"""What can be resampled: functions of an image's confidence, correctness and likelihood."""
CHUNK = 4_000_000

_ODD = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_POISSON = np.cumsum([exp(-1) / factorial(k) for k in range(12)])
_LIMITS = (_POISSON * 2.0**64).astype(np.float64)


@lru_cache(maxsize=2)
def _draws(images: bytes) -> np.ndarray:
    numbers = np.frombuffer(images, dtype=np.uint64)
    counts = np.empty((REPLICATES, len(numbers)), dtype=np.uint8)
    for replicate, row in enumerate(counts):
        row[:] = np.searchsorted(_LIMITS, _hashed(numbers, replicate).astype(np.float64))
    return counts


def draws(images: np.ndarray) -> np.ndarray:
    """How often each image is drawn in each replicate [REPLICATES, N].

    Args:
        images: The numbers of the images, uint64 [N].
    """
    return _draws(np.ascontiguousarray(images, dtype=np.uint64).tobytes())


def _hashed(numbers: np.ndarray, replicate: int) -> np.ndarray:
    """Evenly spread 64-bit numbers, a function of each number and the replicate (SplitMix64)."""
    state = numbers + np.uint64(_ODD * (replicate + 1) % 2**64)
    for shift, factor in _MIX:
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return state ^ (state >> np.uint64(31))


def replicate(outcomes: Outcomes, counts: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """The :data:`METRICS` of a run on every resample of its test images.

    Args:
        counts: How often each image was drawn [R, N]; by default :func:`draws` of the images.

    Returns:
        By metric, its values [R].
    """
    counts = draws(outcomes.images) if counts is None else counts
    order = np.argsort(outcomes.confidence, kind="stable")
    ranked = Outcomes(**{name: values[order] for name, values in vars(outcomes).items()})
    step = max(1, CHUNK // len(order))
    parts = [
        _metrics(ranked, counts[start : start + step, order].astype(np.float64))
        for start in range(0, len(counts), step)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in METRICS}


def _metrics(outcomes: Outcomes, weights: np.ndarray) -> dict[str, np.ndarray]:
    """The metrics of images, in ascending confidence, that count ``weights`` [R, N] times each."""
    size = np.maximum(weights.sum(1), 1)  # [R]
    residual = outcomes.confidence - outcomes.correct
    edges = np.arange(1, BINS) / BINS
    member = np.searchsorted(edges, outcomes.confidence, side="left")[:, None] == np.arange(BINS)
    gaps = np.abs(weights @ (member * residual[:, None]))  # [R, BINS], times the images in the bin
    filled = np.maximum(weights @ member.astype(np.float64), 1)
    return {
        "accuracy": weights @ outcomes.correct / size,
        "gap": weights @ residual / size,
        "ece": gaps.sum(1) / size,
        "ace": _equal_mass_error(weights, outcomes.confidence, residual),
        "mce": (gaps / filled).max(1),
        "weighted_mce": gaps.max(1) / size,
        "nll": weights @ outcomes.nll / size,
    }


def _equal_mass_error(
    weights: np.ndarray, confidence: np.ndarray, residual: np.ndarray
) -> np.ndarray:
    """The error over bins of equal size; equal confidences share what a bin's end cuts off."""
    drawn, total = weights, weights * residual
    starts = np.flatnonzero(np.diff(confidence, prepend=-1))
    if len(starts) < len(confidence):
        drawn, total = (np.add.reduceat(values, starts, axis=1) for values in (drawn, total))
    ends_at = drawn.cumsum(1)  # [R, confidences], how many images are drawn up to each
    size = ends_at[:, -1:].astype(np.int64)
    bins = np.arange(1, BINS)
    cuts = bins * (size // BINS) + np.minimum(bins, size % BINS)  # [R, BINS - 1]
    # One search for all replicates: rows lie behind each other on one scale.
    rows = np.arange(len(size))[:, None]
    scale = (size.max() + 1) * rows
    place = np.searchsorted((ends_at + scale).ravel(), (cuts + scale).ravel()).reshape(cuts.shape)
    place = np.minimum(place - rows * drawn.shape[1], drawn.shape[1] - 1)
    below = ends_at[rows, place] - cuts  # of the confidence that a cut goes through
    share = below / np.maximum(drawn[rows, place], 1)
    sums = total.cumsum(1)
    at_cuts = sums[rows, place] - share * total[rows, place]
    bounds = np.concatenate([np.zeros_like(size), at_cuts, sums[:, -1:]], axis=1)
    return np.abs(np.diff(bounds, axis=1)).sum(1) / np.maximum(size[:, 0], 1)
