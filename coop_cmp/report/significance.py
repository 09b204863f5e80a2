"""Whether a difference between two methods is more than chance, at 95 %.

Two things vary by chance: the test images and the training seed. A difference counts only if its
interval leaves out zero for both: in a paired bootstrap over the images (the same for both methods
and all seeds) and in a paired Student-t interval over the seeds. A bootstrap over three seeds would
only say whether all three agree, which chance does one time in four.

Tables compare hundreds of runs, each on the same resamples, so all resamples of a run are done at
once as products of matrices; :func:`coop_cmp.metrics.bootstrap` takes any metric, one at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from coop_cmp.results import read_predictions

REPLICATES = 1000
LEVEL = 0.95
BINS = 10
CHUNK = 4_000_000


@dataclass(frozen=True)
class Outcomes:
    """What a model said about a test set.

    Args:
        confidence: of the predicted class, ascending [N].
        correct: 1 where the prediction was right, in the same order [N].
        images: the position of each in the test set [N].
        labels: a digest of the labels, the same for all models on that test set.
    """

    confidence: np.ndarray
    correct: np.ndarray
    images: np.ndarray
    labels: int


def read_outcomes(path: Path) -> Outcomes:
    """Read a run's predictions and keep what the bootstrap needs."""
    from coop_cmp.metrics import Samples  # loads torch, which plain tables do without

    predictions = read_predictions(path)
    samples = Samples(predictions.logits, predictions.labels, from_logits=True)
    confidence = samples.confidence.numpy()
    order = np.argsort(confidence, kind="stable")
    digest = zlib.crc32(np.ascontiguousarray(predictions.labels).tobytes())
    return Outcomes(confidence[order], samples.correct.numpy()[order], order, digest)


@lru_cache(maxsize=4)
def draws(size: int, test_set: str) -> np.ndarray:
    """How often each image is drawn in each replicate [REPLICATES, size].

    They depend on the test set alone, so that all methods and seeds see the same images.
    """
    random = np.random.default_rng(zlib.crc32(test_set.encode()))
    counts = np.empty((REPLICATES, size), dtype=np.uint8)
    for row in counts:
        row[:] = np.bincount(random.integers(size, size=size), minlength=size)
    return counts


def replicate(outcomes: Outcomes, counts: np.ndarray) -> dict[str, np.ndarray]:
    """Accuracy and calibration errors on every resample of the images.

    Args:
        counts: how often each image was drawn [R, N].

    Returns:
        By metric, its values [R].
    """
    step = max(1, CHUNK // len(outcomes.images))
    parts = [
        _metrics(outcomes, counts[start : start + step, outcomes.images].astype(np.float64))
        for start in range(0, len(counts), step)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _metrics(outcomes: Outcomes, weights: np.ndarray) -> dict[str, np.ndarray]:
    """The metrics of images that count ``weights`` [R, N] times each."""
    size = len(outcomes.images)
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
    }


def _equal_mass_error(
    weights: np.ndarray, confidence: np.ndarray, residual: np.ndarray
) -> np.ndarray:
    """The error over bins of equal size; equal confidences share what a bin's end cuts off."""
    size = weights.shape[1]
    ends = np.arange(BINS + 1) * (size // BINS) + np.minimum(np.arange(BINS + 1), size % BINS)
    starts = np.flatnonzero(np.diff(confidence, prepend=-1))

    def running(values: np.ndarray) -> np.ndarray:
        """The sums up to each confidence, from 0 on [R, confidences + 1]."""
        return np.pad(np.add.reduceat(values, starts, axis=1).cumsum(1), ((0, 0), (1, 0)))

    totals = zip(running(weights), running(weights * residual), strict=True)
    at_ends = np.array([np.interp(ends, drawn, total) for drawn, total in totals])
    return np.abs(np.diff(at_ends, axis=1)).sum(1) / size


def holds(image_differences: np.ndarray, seed_differences: Sequence[float]) -> bool:
    """Whether a difference holds at 95 % over images and over seeds.

    Args:
        image_differences: the mean difference over seeds, per resample of the images [R].
        seed_differences: the difference per seed; a single seed says nothing about others.
    """
    low, high = np.quantile(image_differences, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return bool(low > 0 or high < 0) and _holds_over_seeds(seed_differences)


def _holds_over_seeds(differences: Sequence[float]) -> bool:
    """Whether the Student-t interval of the mean difference leaves out zero."""
    from scipy.stats import t as student  # slow to load, and plain tables do without

    count = len(differences)
    if count < 2:
        return False
    half_width = student.ppf((1 + LEVEL) / 2, count - 1) * stdev(differences) / count**0.5
    return bool(abs(mean(differences)) > half_width)
