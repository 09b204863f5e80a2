"""The one kernel: samples that count more or less often, and what every metric asks of them.

A metric is a function of weighted samples. With every weight 1 it is the metric itself; where the
weights are how often each sample was drawn, it is that of each resample. Samples are ranked by
their confidence once, and metrics are functions of running sums of weights in that order, so that
no resample is sorted or copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from coop_cmp.metrics.bins import Closed, ReliabilityBins, bin_edges, bin_index, split_starts
from coop_cmp.metrics.classwise import class_residuals, per_class_ece, range_error
from coop_cmp.metrics.ranked import SMOOTH_GRID, grid_shares, smooth_error
from coop_cmp.metrics.samples import Samples


class Weighted:
    """Samples under B weightings.

    Args:
        samples: N of them.
        n_bins: Bins of the binned metrics.
        closed: Which end of an equal-width bin belongs to it.
        weights: How often each sample counts, whole numbers in float64 [B, N]; None for once
            (B = 1).
    """

    def __init__(
        self,
        samples: Samples,
        n_bins: int = 10,
        closed: Closed = "right",
        weights: Tensor | None = None,
    ) -> None:
        self.samples, self.n_bins, self.closed = samples, n_bins, closed
        self._once = weights is None
        self.weights = samples.nll.new_ones(1, len(samples)) if weights is None else weights
        self.size = self.weights.sum(1)  # [B]

    def mean(self, values: Tensor) -> Tensor:
        """Compute the mean of a number that each sample has [N]."""
        return self.weights @ values.double() / self.size

    def each(self, function: Callable[[Samples], float]) -> Tensor:
        """Compute a function of the samples of each weighting, one after the other."""
        if self._once:
            values = [function(self.samples)]
        else:
            places = torch.arange(len(self.samples), device=self.weights.device)
            rows = [places.repeat_interleave(row.long()) for row in self.weights]
            values = [function(self.samples.take(r)) if len(r) else math.nan for r in rows]
        return self.size.new_tensor(values)

    @cached_property
    def width_bins(self) -> ReliabilityBins:
        """Bins of equal width over [0, 1]."""
        edges = bin_edges(self.n_bins, self.samples.edge_dtype, self.size.device)
        index = bin_index(self.samples.ranking[0], edges, self.closed)
        starts = torch.searchsorted(index, torch.arange(self.n_bins + 1, device=index.device))
        totals = (self._count, self._confidence, self._correct)
        sums = (total[:, starts].diff(dim=1) for total in totals)
        return ReliabilityBins(edges.expand(len(self.size), -1), *sums)

    @cached_property
    def mass_bins(self) -> ReliabilityBins:
        """Bins of equal size in ascending order of confidence; the first take what is left over.

        Their edges are the smallest confidences of the bins and the largest of all.
        """
        starts = split_starts(self.size, self.n_bins)  # [B, n_bins + 1]
        group = torch.searchsorted(self._count[:, 1:].contiguous(), starts, right=True)
        distinct = self.samples.ranking[0]
        edges = distinct[group.clamp_max(len(distinct) - 1)]
        return ReliabilityBins(edges, *(x.diff(dim=1) for x in (starts, *self._first(starts))))

    @cached_property
    def whole_bins(self) -> ReliabilityBins:
        """The same, with samples of equal confidence in one bin: that where the first of them is.

        An estimate of the noise in a bin needs its samples to be drawn apart.
        """
        place = self._count[:, :-1].contiguous()
        starts = split_starts(self.size, self.n_bins)[:, 1:].contiguous()
        index = torch.searchsorted(starts, place, right=True).clamp_max(self.n_bins - 1)
        groups = (self._items, self._confidence.diff(dim=1), self._hits)
        sums = (
            values.new_zeros(len(self.size), self.n_bins).scatter_add_(1, index, values)
            for values in groups
        )
        return ReliabilityBins(self.mass_bins.edges, *sums)

    def ks(self) -> Tensor:
        """Compute the largest |sum of (confidence - correct) up to any confidence| / N."""
        return (self._confidence - self._correct).abs().amax(1) / self.size

    def risk_coverage_area(self) -> Tensor:
        """Compute the mean error rate of the most confident 1, 2, ..., N.

        Within a group of equal confidence the k-th kept item has the rate (W + j m) / (K + j),
        whose sum over j is n m + (W - m K) (H(K + n) - H(K)) with the harmonic numbers H.
        """
        items, wrong = self._items, self._items - self._hits
        kept = self.size[:, None] - self._count[:, 1:]  # items more confident than the group
        errors = self._count - self._correct
        before = errors[:, -1:] - errors[:, 1:]
        rate = wrong / items.clamp_min(1)
        whole = torch.arange(int(self.size.max()) + 1, dtype=torch.float64, device=rate.device)
        harmonic = torch.cat([whole[:1], (1 / whole[1:]).cumsum(0)])
        reach = harmonic[(kept + items).long()] - harmonic[kept.long()]
        return (wrong + (before - rate * kept) * reach).sum(1) / self.size

    def risk_at(self, coverage: float) -> Tensor:
        """Compute the error rate of the most confident ``coverage`` share of the samples."""
        # 0.7 * 10 is a hair above 7 in floating point and must not round up to 8.
        kept = (coverage * self.size - 1e-9).ceil().clamp_min(1)
        left_out = (self.size - kept)[:, None]
        return 1 - (self._correct[:, -1] - self._first(left_out)[1][:, 0]) / kept

    def auroc(self) -> Tensor:
        """Compute the chance that a correct sample is more confident than a wrong one.

        NaN without both kinds; ties count half.
        """
        wrong = self._items - self._hits
        below = (self._count - self._correct)[:, :-1] + wrong / 2
        pairs = self._correct[:, -1] * (self.size - self._correct[:, -1])
        return torch.where(pairs > 0, (self._hits * below).sum(1) / pairs, math.nan)

    def smooth_ece(self) -> Tensor:
        """Compute the smooth ECE, see :func:`coop_cmp.metrics.ranked.smooth_error`."""
        left, *shares = grid_shares(self.samples)
        nodes = self.weights.new_zeros(len(self.size), SMOOTH_GRID + 1)
        for offset, share in enumerate(shares):
            nodes.index_add_(1, left + offset, self.weights * share)
        rows = nodes / self.size.clamp_min(1)[:, None]
        return self.size.new_tensor([smooth_error(row) for row in rows])

    def classwise_ece(self) -> Tensor:
        """Compute the mean over classes of their one-versus-rest ECE."""

        def of(samples: Samples) -> float:
            residuals = class_residuals(samples, self.n_bins, self.closed)
            return per_class_ece(residuals, len(samples)).mean().item()

        return self.each(of)

    def range_error(self, threshold: float = 0.0) -> Tensor:
        """Compute the ACE of Nixon et al., or their TACE, over all classes."""
        return self.each(lambda samples: range_error(samples, self.n_bins, threshold))

    @cached_property
    def _drawn(self) -> Tensor:
        """The weights in ascending order of confidence [B, N]."""
        return self.weights[:, self.samples.ranking[2]]

    def _running(self, values: Tensor | None = None) -> Tensor:
        """Sums of a number of each sample [N] over the groups up to each one [B, G + 1]."""
        _, ends, order = self.samples.ranking
        drawn = self._drawn if values is None else self._drawn * values[order]
        sums = drawn.cumsum(1)
        sums = sums if len(ends) == len(order) else sums[:, ends]
        return torch.nn.functional.pad(sums, (1, 0))

    @cached_property
    def _count(self) -> Tensor:
        return self._running()

    @cached_property
    def _confidence(self) -> Tensor:
        return self._running(self.samples.confidence)

    @cached_property
    def _correct(self) -> Tensor:
        return self._running(self.samples.correct)

    @cached_property
    def _items(self) -> Tensor:
        """How many samples each group has [B, G]."""
        return self._count.diff(dim=1)

    @cached_property
    def _hits(self) -> Tensor:
        """How many samples of each group are correct [B, G]."""
        return self._correct.diff(dim=1)

    def _first(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of confidence and correctness of the least confident samples, for numbers [B, K].

        Samples of equal confidence share their correctness, so that their order does not matter.
        """
        group = torch.searchsorted(self._count[:, 1:].contiguous(), number)
        group = group.clamp_max(self._items.shape[1] - 1)
        part = number - self._count.gather(1, group)
        confidence = self._confidence.gather(1, group) + part * self.samples.ranking[0][group]
        share = self._hits.gather(1, group) / self._items.gather(1, group).clamp_min(1)
        return confidence, self._correct.gather(1, group) + part * share


def width_bins(samples: Samples, n_bins: int, closed: Closed) -> ReliabilityBins:
    """Return the bins of equal width over [0, 1], as in a reliability diagram."""
    return Weighted(samples, n_bins, closed).width_bins[0]
