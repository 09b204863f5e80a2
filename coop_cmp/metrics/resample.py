"""Metrics on resampled test images, and the intervals they give.

Each image is drawn a number of times that depends on its own number, the replicate and the seed
alone (a Poisson bootstrap). So every method, seed and test set that shows the same picture sees it
drawn alike, as the four shifts of one test set do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, factorial

import numpy as np
import torch

from coop_cmp.errors import UserError
from coop_cmp.metrics.bins import Closed
from coop_cmp.metrics.panel import measure
from coop_cmp.metrics.records import METRICS
from coop_cmp.metrics.samples import Samples
from coop_cmp.metrics.weighted import Weighted

REPLICATES = 400  # enough for a variance: its root is then known to 4 %
MOST_RESAMPLES = 100_000
BLOCK_ELEMENTS = 2**16  # weights at a time, so that they stay in the cache

_ODD = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_POISSON = np.cumsum([exp(-1) / factorial(k) for k in range(12)])
_LIMITS = (_POISSON * 2.0**64).astype(np.float64)


def draws(images: np.ndarray, replicates: int = REPLICATES, seed: int = 0) -> np.ndarray:
    """Return how often each image is drawn in each replicate [replicates, N].

    Args:
        images: The numbers of the images, uint64 [N].
    """
    return _draws(np.ascontiguousarray(images, dtype=np.uint64).tobytes(), replicates, seed)


@lru_cache(maxsize=2)
def _draws(images: bytes, replicates: int, seed: int) -> np.ndarray:
    numbers = np.frombuffer(images, dtype=np.uint64)
    counts = np.empty((replicates, len(numbers)), dtype=np.uint8)
    for replicate, row in enumerate(counts):
        hashed = _hashed(numbers, (seed << 32) + replicate)
        row[:] = np.searchsorted(_LIMITS, hashed.astype(np.float64))
    return counts


def _hashed(numbers: np.ndarray, replicate: int) -> np.ndarray:
    """Evenly spread 64-bit numbers, a function of each number and the replicate (SplitMix64)."""
    state = numbers + np.uint64(_ODD * (replicate + 1) % 2**64)
    for shift, factor in _MIX:
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return state ^ (state >> np.uint64(31))


def resample(
    samples: Samples,
    names: Sequence[str],
    counts: np.ndarray,
    n_bins: int = 10,
    closed: Closed = "right",
    progress: Callable[[range], Iterable[int]] = iter,
) -> dict[str, np.ndarray]:
    """Compute metrics on every resample of some samples.

    Args:
        samples: N of them.
        names: Of the metrics.
        counts: How often each sample was drawn [R, N], see :func:`draws`.
        n_bins: Bins of the binned metrics.
        closed: Which end of an equal-width bin belongs to it.
        progress: Wraps the loop over blocks of resamples, as ``tqdm`` does.

    Returns:
        By metric its values [R]; NaN where it is undefined, as where nothing was drawn.
    """
    values = {name: np.empty(len(counts)) for name in names}
    block = max(1, BLOCK_ELEMENTS // len(samples))
    for start in progress(range(0, len(counts), block)):
        rows = slice(start, start + block)
        weights = torch.from_numpy(counts[rows]).to(samples.labels.device, torch.float64)
        weighted = Weighted(samples, n_bins, closed, weights)
        for name, found in values.items():
            value = METRICS[name].values(weighted).masked_fill(weighted.size == 0, torch.nan)
            found[rows] = value.cpu().numpy()
    return values


@dataclass(frozen=True)
class Interval:
    """A value with its percentile bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def bootstrap(
    samples: Samples,
    keys: Iterable[str] | None = None,
    *,
    minus: Samples | None = None,
    n_bins: int = 10,
    closed: Closed = "right",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    progress: Callable[[range], Iterable[int]] = iter,
) -> dict[str, Interval]:
    """Compute intervals from resampling the test samples with replacement.

    Resampling adds noise, and an absolute gap can only grow by noise: the interval of a very small
    ECE may lie above its value. In a difference most of that cancels.

    Args:
        samples: The predictions, for example ``Samples(logits, labels, from_logits=True)``.
        keys: Metric names; by default all but those that take long.
        minus: Another method's predictions for the same test set. The intervals are then those of
            the differences ``samples`` minus ``minus``, paired: both methods see the same images
            in each resample, so what makes an image hard for both does not widen the interval.
        n_bins: Bins of the binned metrics.
        closed: Which end of an equal-width bin belongs to it.
        resamples: How many times to resample.
        level: Share of the resampled values inside the interval.
        seed: The same seed gives the same interval.
        progress: Wraps the loop over blocks of resamples, as ``tqdm`` does.

    Returns:
        An interval for each key.
    """
    keys = None if keys is None else list(keys)
    if not 1 <= resamples <= MOST_RESAMPLES:
        raise UserError(f"resamples: expected from 1 to {MOST_RESAMPLES}, got {resamples!r}")
    if not 0 < level < 1:
        raise UserError(f"level: expected a share between 0 and 1, got {level!r}")
    if minus is not None and not torch.equal(samples.labels.cpu(), minus.labels.cpu()):
        raise UserError(
            "minus: its labels differ, so it is not the same test set in the same order"
        )
    value = measure(samples, keys, n_bins, closed)
    names = list(value)
    counts = draws(np.arange(len(samples)), resamples, seed)
    found = resample(samples, names, counts, n_bins, closed, progress)
    if minus is not None:
        other = measure(minus, keys, n_bins, closed)
        others = resample(minus, names, counts, n_bins, closed, progress)
        found = {name: values - others[name] for name, values in found.items()}
        value = {name: value[name] - other[name] for name in names}
    tails = [(1 - level) / 2, (1 + level) / 2]
    intervals = {}
    for name in names:
        # A resample without a wrong sample has no auroc; the others still have.
        defined = found[name][~np.isnan(found[name])]
        ends = np.quantile(defined, tails).tolist() if len(defined) else [np.nan, np.nan]
        intervals[name] = Interval(value[name], *ends)
    return intervals
