"""Bootstrap intervals of any metric, and of the difference between two methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.metrics.bins import Closed, check_bins
from coop_cmp.metrics.panel import METRICS, check_keys
from coop_cmp.metrics.resample import WEIGHTED, Resampled
from coop_cmp.metrics.samples import Samples

BLOCK_ELEMENTS = 2**16  # weights at a time, so that they stay in the cache


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
    """Intervals from resampling the test samples with replacement.

    Resampling adds noise, and an absolute gap can only grow by noise: the interval of a very small
    ECE may lie above its value. In a difference most of that cancels.

    Args:
        samples: The predictions, for example ``Samples(logits, labels, from_logits=True)``.
        keys: Metric names; all by default.
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
    check_bins(n_bins, closed)
    names = check_keys(keys)
    if resamples < 1:
        raise UserError(f"resamples: expected at least 1, got {resamples!r}")
    if not 0 < level < 1:
        raise UserError(f"level: expected a share between 0 and 1, got {level!r}")
    if minus is not None and not torch.equal(samples.labels.cpu(), minus.labels.cpu()):
        raise UserError(
            "minus: its labels differ, so it is not the same test set in the same order"
        )

    sides = [samples] if minus is None else [samples, minus]
    fast = [name for name in names if name in WEIGHTED]
    slow = [name for name in names if name not in WEIGHTED]
    weighted = [Resampled(side, n_bins, closed) for side in sides] if fast else []

    def of_weights(draws: list[Tensor]) -> Tensor:
        """The fast metrics [B, fast] of some draws [N]."""
        counts = torch.stack([rows.bincount(minlength=len(samples)) for rows in draws]).double()
        return _difference([of(counts.to(of.edges.device), fast).cpu() for of in weighted])

    def of_rows(rows: Tensor) -> Tensor:
        """The slow metrics [slow] of one draw [N]."""
        taken = [side.take(rows.to(side.labels.device)) for side in sides]
        return _difference([_values(side, slow, n_bins, closed) for side in taken])

    generator = torch.Generator().manual_seed(seed)
    size = (len(samples),)
    table = torch.empty(resamples, len(names), dtype=torch.float64)
    block = max(1, BLOCK_ELEMENTS // len(samples))
    for start in progress(range(0, resamples, block)):
        part = slice(start, min(start + block, resamples))
        draws = [torch.randint(*size, size, generator=generator) for _ in range(resamples)[part]]
        if fast:
            table[part, : len(fast)] = of_weights(draws)
        for offset, rows in enumerate(draws if slow else []):
            table[start + offset, len(fast) :] = of_rows(rows)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    # A resample without a wrong sample has no auroc; the others still have.
    ends = dict(zip(fast + slow, table.nanquantile(tails, dim=0).t().tolist(), strict=True))
    whole = _difference([_values(side, names, n_bins, closed) for side in sides])
    return {
        name: Interval(value, *ends[name])
        for name, value in zip(names, whole.tolist(), strict=True)
    }


def _values(samples: Samples, names: list[str], n_bins: int, closed: Closed) -> Tensor:
    values = [METRICS[name](samples, n_bins, closed) for name in names]
    return torch.tensor(values, dtype=torch.float64)


def _difference(sides: list[Tensor]) -> Tensor:
    """The first, less the second if there is one."""
    return sides[0] if len(sides) == 1 else sides[0] - sides[1]
