"""B against A on the same seeds and the same images: the difference, and how sure it is.

Two things vary by chance: the training seed and the test images. The variance of a mean difference
is that over seeds, divided by their number, plus that of the mean over resampled images; the
interval is Student's t with Satterthwaite's degrees of freedom. Without an effect it leaves out
zero in 5 % of cases, give or take what docs/calibration.md states.
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
from coop_cmp.runs.stored import StoredRun, bins_of

LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """A mean difference with its interval.

    Attributes:
        estimate: B minus A, mean over seeds.
        low: Lower end of the 95 % interval; NaN where a single seed tells nothing of others.
        high: Upper end.
        p: How often chance alone gives a difference as large; NaN likewise.
        seeds: How many seeds both have; 0 where neither depends on one.
    """

    estimate: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    seeds: int = 0

    @property
    def holds(self) -> bool:
        """Whether the difference can be told from chance, at 95 %."""
        return self.p < 1 - LEVEL


def interval(
    estimate: Any, seed_variance: Any, image_variance: Any, seeds: int
) -> tuple[Any, Any, Any]:
    """Lower end, upper end and p of differences, each a number or an array.

    Args:
        estimate: The mean over seeds.
        seed_variance: The sample variance over seeds; 0 where nothing depends on a seed.
        image_variance: The variance of ``estimate`` over resampled images.
        seeds: How many seeds the mean is over.
    """
    from scipy.stats import t as student  # slow to load, and plain tables do without

    of_mean = np.asarray(seed_variance, dtype=float) / max(seeds, 1)
    total = of_mean + image_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(of_mean > 0, total**2 / of_mean**2 * (seeds - 1), np.inf)
        spread = np.sqrt(total)
        half_width = student.ppf((1 + LEVEL) / 2, freedom) * spread
        score = np.where(spread > 0, np.abs(estimate) / spread, np.where(estimate == 0, 0, np.inf))
    return estimate - half_width, estimate + half_width, 2 * student.sf(score, freedom)


def difference(
    by_seed: Sequence[float], replicates: np.ndarray, deterministic: bool = False
) -> Difference:
    """The mean difference with its interval.

    Args:
        by_seed: The difference of each seed.
        replicates: The mean difference over seeds, per resample of the images [R].
        deterministic: Nothing depends on a seed, so a single value is all there is to know.
    """
    estimate, seeds = float(np.mean(by_seed)), len(by_seed)
    if seeds < 2 and not deterministic:
        return Difference(estimate, seeds=seeds)
    over_seeds = 0.0 if deterministic else float(np.var(by_seed, ddof=1))
    over_images = float(np.var(replicates[~np.isnan(replicates)], ddof=1))
    low, high, p = map(float, interval(estimate, over_seeds, over_images, seeds))
    return Difference(estimate, low, high, p, 0 if deterministic else seeds)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p values of a family such that all of them hold at once at 95 %.

    NaN stays NaN and does not count.
    """
    ranked = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(ranked):
        largest = max(largest, min(1.0, p * (len(ranked) - rank)))
        corrected[index] = largest
    return corrected


def corrected(family: Iterable[Difference]) -> list[Difference]:
    """The differences of a family with Holm's p; the intervals stay those of each alone."""
    members = list(family)
    p_values = holm([member.p for member in members])
    return [replace(member, p=p) for member, p in zip(members, p_values, strict=True)]


@dataclass
class Comparer:
    """Compares rows of the frame of results, and reads the outcomes of each run once."""

    _tested: dict[str, bytes] = field(default_factory=dict)
    _values: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def compare(self, pairs: Sequence[tuple[Any, Any]], metric: str) -> Difference | None:
        """The difference in a metric, of its mean over test sets if there are several.

        Args:
            pairs: Rows (B, A) of the frame, each pair of one seed and one test set.

        Returns:
            None where no seed has all test sets.

        Raises:
            UserError: A pair was not tested on the same images.
        """
        sets = len({b["test_set"] for b, _ in pairs})
        by_seed: dict[int, list[tuple[Any, Any]]] = {}
        for b, a in pairs:
            by_seed.setdefault(b["seed"], []).append((b, a))
        whole = [found for found in by_seed.values() if len(found) == sets]
        if not whole:
            return None
        values = [float(np.mean([b[metric] - a[metric] for b, a in found])) for found in whole]
        shifts = [self._difference(b, a, metric) for found in whole for b, a in found]
        fixed = not any(row["trainable"] for found in whole for pair in found for row in pair)
        return difference(values, np.mean(shifts, axis=0), deterministic=fixed)

    def value(self, rows: Sequence[Any], metric: str) -> Difference:
        """The metric itself, its mean over seeds with the interval, as if compared with 0.

        Args:
            rows: Rows of the frame that differ in their seed alone.
        """
        drawn = [self._replicates(row, metric) for row in rows]
        fixed = not any(row["trainable"] for row in rows)
        return difference([row[metric] for row in rows], np.mean(drawn, axis=0), fixed)

    def _difference(self, b: Any, a: Any, metric: str) -> np.ndarray:
        ours, theirs = self._replicates(b, metric), self._replicates(a, metric)
        if self._tested[b["directory"]] != self._tested[a["directory"]]:
            raise UserError(
                f"{b['directory']} and {a['directory']} were not tested on the same images"
            )
        return ours - theirs

    def _replicates(self, row: Any, metric: str) -> np.ndarray:
        """A metric of a run on resamples of its test images, in the bins of the run [R].

        All that tables show is computed at once: what they ask next is then known.
        """
        folder = row["directory"]
        if (folder, metric) not in self._values:
            from coop_cmp.metrics.resample import draws, resample  # torch is slow to load

            run = StoredRun.of(folder, {})
            images, labels = run.outcomes.images, run.outcomes.labels
            self._tested[folder] = hashlib.sha256(images.tobytes() + labels.tobytes()).digest()
            shown = [m.name for m in METRICS.values() if m.shown and not m.all_probabilities]
            names = list(dict.fromkeys([metric, *shown]))
            samples, counts = run.samples_for(metric), draws(images)
            for name, values in resample(samples, names, counts, *bins_of(row)).items():
                self._values[folder, name] = values
        return self._values[folder, metric]
