"""Bootstrap intervals of any metric, and of the difference between two methods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.metrics.bins import Closed, check_bins
from coop_cmp.metrics.panel import METRICS, check_keys
from coop_cmp.metrics.samples import Samples


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

    def measure(rows: Tensor | None) -> Tensor:
        """The metrics [keys], or their differences, of the samples in those rows."""
        values = []
        for side in (samples, minus):
            if side is not None:
                drawn = side if rows is None else side.take(rows.to(side.labels.device))
                values.append([METRICS[name](drawn, n_bins, closed) for name in names])
        table = torch.tensor(values, dtype=torch.float64)
        return table[0] - table[1] if minus is not None else table[0]

    generator = torch.Generator().manual_seed(seed)
    size = (len(samples),)
    draws = [measure(torch.randint(size[0], size, generator=generator)) for _ in range(resamples)]
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    # A resample without a wrong sample has no auroc; the others still have.
    low, high = torch.stack(draws).nanquantile(tails, dim=0)
    columns = (measure(None).tolist(), low.tolist(), high.tolist())
    return {name: Interval(*row) for name, *row in zip(names, *columns, strict=True)}
