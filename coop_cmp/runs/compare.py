"""B against A on the same seeds and the same images: the difference, and how sure it is.

Two things vary by chance: the training seed and the test images. The variance of a mean difference
is that over seeds, divided by their number, plus that of the mean over resampled images, less what
is in both: the part in which seeds differ from image to image. The interval is Student's t with
Satterthwaite's degrees of freedom. Without an effect it excludes zero in 5 % of cases, give or take
what docs/train.md states.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from coop_cmp.errors import UserError
from coop_cmp.metrics.records import METRICS
from coop_cmp.runs.stored import StoredRun

LEVEL = 0.95
ROUNDING = 1e-12  # no difference, but for the order of sums


@dataclass(frozen=True)
class Difference:
    """A mean difference with its interval.

    Attributes:
        estimate: B minus A, mean over seeds.
        low: Lower end of the 95 % interval; NaN where a single seed tells nothing of others.
        high: Upper end.
        p: How often chance alone gives a difference as large; NaN likewise.
        seeds: How many seeds both have; 0 where neither depends on one.
        family_p: The same as p for a member of a family, before Holm's correction.
    """

    estimate: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    seeds: int = 0
    family_p: float = math.nan

    @property
    def holds(self) -> bool:
        """Whether the difference is significant, at 5 %."""
        return self.p < 1 - LEVEL


def variances(by_seed: np.ndarray, replicates: np.ndarray) -> tuple[float, float, float]:
    """Estimate the variances of a mean difference by seeds and by images alone.

    Seeds that agree exactly, as accuracies on a few hundred images often do, tell nothing of their
    variance; then it is what images give it at least.

    Args:
        by_seed: The difference of each seed [S].
        replicates: The same on each resample of the images [S, R].

    Returns:
        The variance by seeds, by images alone, and the part of the first that images explain: that
        seeds differ from image to image.
    """
    seeds = len(by_seed)
    shifts = replicates - replicates.mean(1, keepdims=True)
    both = float(np.var(shifts, axis=0, ddof=1).mean() / seeds)
    over_seeds = float(np.var(by_seed, ddof=1) / seeds) if np.ptp(by_seed) > ROUNDING else both
    # What is in both is counted once.
    over_images = float(np.var(replicates.mean(0), ddof=1)) - both
    return over_seeds, max(over_images, 0.0), both


def interval(estimate: Any, over_seeds: Any, over_images: Any, seeds: int) -> tuple[Any, Any, Any]:
    """Compute lower end, upper end and p of differences, numbers or arrays.

    Args:
        estimate: The mean over seeds.
        over_seeds: Its variance by seeds; 0 where nothing depends on a seed.
        over_images: Its variance by images.
        seeds: How many seeds the mean is over.
    """
    from scipy.stats import t as student  # slow to load, and plain tables do without

    total = np.asarray(over_seeds, dtype=float) + over_images
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(over_seeds > 0, total**2 / over_seeds**2 * (seeds - 1), np.inf)
    half_width = student.ppf((1 + LEVEL) / 2, freedom) * np.sqrt(total)
    return estimate - half_width, estimate + half_width, _p(estimate, total, freedom)


def family_p(estimate: Any, over_seeds: Any, over_images: Any, both: Any, seeds: int) -> Any:
    """Compute p of members of a family, which holds for the smallest of many.

    Satterthwaite's degrees of freedom grow without bound where few seeds agree by luck, and among
    many comparisons some do. So there are seeds - 1 of them here, and the variance by seeds is no
    smaller than the part that images explain.

    Args:
        both: That part; the others as for :func:`interval`.
    """
    return _p(estimate, np.maximum(over_seeds, both) + over_images, seeds - 1 if seeds else np.inf)


def _p(estimate: Any, variance: Any, freedom: Any) -> Any:
    """How often chance alone gives an estimate as large; 1 for one that is nothing but rounding."""
    from scipy.stats import t as student

    size = np.abs(estimate)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(size > ROUNDING, 2 * student.sf(size / np.sqrt(variance), freedom), 1.0)


def difference(
    by_seed: Sequence[float], replicates: np.ndarray, deterministic: bool = False
) -> Difference:
    """Compute a mean difference with its interval.

    Args:
        by_seed: The difference of each of S seeds.
        replicates: The same on each resample of the images [S, R]; NaN where it is undefined.
        deterministic: Nothing depends on a seed, so a single value is all there is to know.
    """
    values, seeds = np.asarray(by_seed), len(by_seed)
    estimate = float(values.mean())
    if seeds < 2 and not deterministic:
        return Difference(estimate, seeds=seeds)
    replicates = replicates[:, ~np.isnan(replicates).any(0)]
    if deterministic:
        over_images = float(np.var(replicates.mean(0), ddof=1))
        seeds, over_seeds, both = 0, 0.0, 0.0
    else:
        over_seeds, over_images, both = variances(values, replicates)
    low, high, p = map(float, interval(estimate, over_seeds, over_images, seeds))
    in_family = float(family_p(estimate, over_seeds, over_images, both, seeds))
    return Difference(estimate, low, high, p, seeds, in_family)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p values of a family, so that all hold at once at 95 %; NaN does not count."""
    ranked = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(ranked):
        largest = max(largest, min(1.0, p * (len(ranked) - rank)))
        corrected[index] = largest
    return corrected


def corrected(family: Iterable[Difference]) -> list[Difference]:
    """Return the differences of a family with Holm's p; the intervals stay those of each alone."""
    members = list(family)
    p_values = holm([member.family_p for member in members])
    return [replace(member, p=p) for member, p in zip(members, p_values, strict=True)]


class OtherImages(UserError):
    """Two runs were not tested on the same images."""


Row = Any
Pair = tuple[Row, Row | None]


@dataclass
class Comparer:
    """Compares rows of the frame of results, and reads the outcomes of each run once.

    Attributes:
        intervals: Whether to read outcomes at all; else there are estimates alone.
    """

    intervals: bool = True
    _tested: dict[str, bytes] = field(default_factory=dict)
    _values: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def compare(self, pairs: Sequence[tuple[Row, Row]], metric: str) -> Difference | None:
        """Compute the difference in a metric, of its mean over test sets if there are several.

        Args:
            pairs: Rows (B, A) of the frame, each pair of one seed and one test set.

        Returns:
            None where no seed has all test sets.

        Raises:
            OtherImages: A pair was not tested on the same images.
        """
        sets = len({b["test_set"] for b, _ in pairs})
        whole = [found for found in _by_seed(pairs) if len(found) == sets]
        least, most = METRICS[metric].bounds
        return self._mean(whole, metric, (least - most, most - least)) if whole else None

    def value(self, rows: Sequence[Row], metric: str) -> Difference:
        """Compute the metric itself, as if compared with 0.

        Args:
            rows: Rows of the frame that differ in their seed alone, or in their test set too: every
                seed has the same sets, over which the mean is taken.
        """
        pairs = [(row, None) for row in rows]
        return self._mean(_by_seed(pairs), metric, METRICS[metric].bounds)

    def _mean(
        self, by_seed: Sequence[Sequence[Pair]], metric: str, bounds: tuple[float, float]
    ) -> Difference:
        values = [
            float(np.mean([b[metric] - (0 if a is None else a[metric]) for b, a in pairs]))
            for pairs in by_seed
        ]
        if not self.intervals:
            return Difference(float(np.mean(values)), seeds=len(values))
        shifts = np.array(
            [np.mean([self._shift(*pair, metric) for pair in pairs], axis=0) for pairs in by_seed]
        )
        rows = [row for pairs in by_seed for pair in pairs for row in pair if row is not None]
        found = difference(values, shifts, not any(row["trainable"] for row in rows))
        if math.isnan(found.low):
            return found
        return replace(found, low=max(found.low, bounds[0]), high=min(found.high, bounds[1]))

    def _shift(self, b: Row, a: Row | None, metric: str) -> np.ndarray:
        """B minus A on resamples of the test images [R]."""
        ours = self._replicates(b, metric)
        if a is None:
            return ours
        theirs = self._replicates(a, metric)
        if self._tested[b["directory"]] != self._tested[a["directory"]]:
            raise OtherImages(
                f"{b['directory']} and {a['directory']} were not tested on the same images"
            )
        return ours - theirs

    def _replicates(self, row: Row, metric: str) -> np.ndarray:
        """A metric of a run on resamples of its test images, in the bins of the run [R].

        All that tables show is computed at once: what they ask next is then known.
        """
        folder = row["directory"]
        if (folder, metric) not in self._values:
            from coop_cmp.metrics.resample import draws, resample  # torch is slow to load

            run = StoredRun.of(folder)
            images, labels = run.outcomes.images, run.outcomes.labels
            self._tested[folder] = hashlib.sha256(images.tobytes() + labels.tobytes()).digest()
            shown = [m.name for m in METRICS.values() if m.shown and not m.all_probabilities]
            names = list(dict.fromkeys([metric, *shown]))
            found = resample(run.samples_for(metric), names, draws(images), *run.bins)
            self._values |= {(folder, name): values for name, values in found.items()}
        return self._values[folder, metric]


def _by_seed(pairs: Iterable[Pair]) -> list[list[Pair]]:
    found: dict[int, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair[0]["seed"], []).append(pair)
    return list(found.values())
