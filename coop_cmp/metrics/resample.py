"""The top-label metrics of many resamples at once, from how often each sample was drawn.

Drawing with replacement gives every sample a weight. In order of confidence, which is found once,
every metric is a function of running sums of weights, so that no resample is sorted or copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from coop_cmp.metrics.bins import Closed, ReliabilityBins, bin_edges, bin_index, split_starts
from coop_cmp.metrics.panel import perplexity_of
from coop_cmp.metrics.ranked import SMOOTH_GRID, grid_shares, smooth_error
from coop_cmp.metrics.samples import Samples

BINNED = ("ece", "mce", "weighted_mce", "rmsce", "average_ce")


class Resampled:
    """The metrics of resamples of some samples.

    Args:
        samples: All of them, N.
        n_bins: Bins of the binned metrics.
        closed: Which end of an equal-width bin belongs to it.
    """

    def __init__(self, samples: Samples, n_bins: int, closed: Closed) -> None:
        self.size, self.n_bins, self.n_classes = len(samples), n_bins, samples.n_classes
        order = samples.confidence.argsort()
        # Samples of equal confidence share their correctness: each group of them is one item.
        self.confidence, self._group_of_sorted = torch.unique_consecutive(
            samples.confidence[order], return_inverse=True
        )
        self._order = order
        self._correct = samples.correct[order]
        brier, entropy = samples.spread
        self._plain = torch.stack([samples.nll, brier, entropy], dim=1)  # [N, 3]
        self.edges = bin_edges(n_bins, samples.edge_dtype, order.device)
        index = bin_index(self.confidence, self.edges, closed)
        bins = torch.arange(n_bins + 1, device=order.device)
        self._bin_starts = torch.searchsorted(index, bins)
        self.closed = closed
        left, left_share, right_share = grid_shares(samples)
        self._left, self._shares = left, (left_share, right_share)
        whole = torch.arange(self.size + 1, dtype=torch.float64, device=order.device)
        self._harmonic = torch.cat([whole[:1], (1 / whole[1:]).cumsum(0)])

    def __call__(self, weights: Tensor, names: list[str]) -> Tensor:
        """Metrics [B, names] for weights [B, N]: how often each sample was drawn."""
        draw = _Draw(self, weights)
        return torch.stack([_METRICS[name](draw) for name in names], dim=1)


class _Draw:
    """Running sums over groups in ascending confidence, of B resamples; all are [B, G + 1]."""

    def __init__(self, base: Resampled, weights: Tensor) -> None:
        self.base, self.weights = base, weights
        drawn = weights[:, base._order]
        shape = (len(weights), len(base.confidence))
        group = base._group_of_sorted
        self.items = weights.new_zeros(shape).index_add_(1, group, drawn)
        self.hits = weights.new_zeros(shape).index_add_(1, group, drawn * base._correct)
        self.count = _running(self.items)
        self.correct = _running(self.hits)
        self.confidence = _running(self.items * base.confidence)
        self.wrong = self.items - self.hits

    @cached_property
    def share(self) -> Tensor:
        """Mean correctness of each group [B, G]; 0 for one that was not drawn."""
        return self.hits / self.items.clamp_min(1)

    def first(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of confidence and correctness of the least confident items, for numbers [K]."""
        wanted = number.to(self.count.dtype).expand(len(self.weights), -1).contiguous()
        group = torch.searchsorted(self.count[:, 1:].contiguous(), wanted)
        group = group.clamp_max(len(self.base.confidence) - 1)
        part = wanted - self.count.gather(1, group)
        confidence = self.confidence.gather(1, group) + part * self.base.confidence[group]
        return confidence, self.correct.gather(1, group) + part * self.share.gather(1, group)

    def plain(self, column: int) -> Tensor:
        """Mean of one of the numbers that each sample has [B]."""
        return self.weights @ self.base._plain[:, column] / self.base.size

    @cached_property
    def width_bins(self) -> list[ReliabilityBins]:
        """Bins of equal width, of each resample."""
        totals = (self.count, self.confidence, self.correct)
        count, confidence, correct = (
            total[:, self.base._bin_starts].diff(dim=1) for total in totals
        )
        return self._bins(count, confidence, correct)

    @cached_property
    def mass_bins(self) -> list[ReliabilityBins]:
        """Bins of equal size, of each resample."""
        starts = split_starts(self.base.size, self.base.n_bins, self.weights.device)
        confidence, correct = (total.diff(dim=1) for total in self.first(starts))
        count = starts.diff().double().expand_as(confidence)
        return self._bins(count, confidence, correct)

    def _bins(self, count: Tensor, confidence: Tensor, correct: Tensor) -> list[ReliabilityBins]:
        edges, closed = self.base.edges, self.base.closed
        rows = zip(count, confidence, correct, strict=True)
        return [ReliabilityBins(edges, n, p, hits, closed) for n, p, hits in rows]


def _running(values: Tensor) -> Tensor:
    """Running sums [B, G + 1] of values [B, G], beginning with 0."""
    return torch.cat([values.new_zeros(len(values), 1), values.cumsum(1)], dim=1)


def _of_bins(name: str, kind: str) -> Callable[[_Draw], Tensor]:
    return lambda d: torch.tensor(
        [getattr(bins, name) for bins in getattr(d, kind)], dtype=torch.float64
    )


def _ks(draw: _Draw) -> Tensor:
    return (draw.confidence - draw.correct).abs().amax(1) / draw.base.size


def _risk_coverage_area(draw: _Draw) -> Tensor:
    """Mean error rate of the most confident 1, 2, ..., N.

    Within a group the k-th kept item has the rate (W + j m) / (K + j), whose sum over j is
    n m + (W - m K) (H(K + n) - H(K)) with the harmonic numbers H.
    """
    kept = draw.base.size - draw.count[:, 1:]  # items that are more confident than the group
    before = (draw.count - draw.correct)[:, -1:] - (draw.count - draw.correct)[:, 1:]
    rate = draw.wrong / draw.items.clamp_min(1)
    harmonic = draw.base._harmonic
    reach = harmonic[(kept + draw.items).long()] - harmonic[kept.long()]
    return (draw.wrong + (before - rate * kept) * reach).sum(1) / draw.base.size


def _risk_at_80(draw: _Draw) -> Tensor:
    size = draw.base.size
    kept = max(1, math.ceil(0.8 * size - 1e-9))
    left_out = torch.tensor([size - kept], device=draw.weights.device)
    return 1 - (draw.correct[:, -1] - draw.first(left_out)[1][:, 0]) / kept


def _auroc(draw: _Draw) -> Tensor:
    below = (draw.count - draw.correct)[:, :-1] + draw.wrong / 2
    pairs = draw.correct[:, -1] * (draw.base.size - draw.correct[:, -1])
    return torch.where(pairs > 0, (draw.hits * below).sum(1) / pairs, math.nan)


def _smooth_ece(draw: _Draw) -> Tensor:
    base = draw.base
    nodes = draw.weights.new_zeros(len(draw.weights), SMOOTH_GRID + 1)
    for offset, share in enumerate(base._shares):
        nodes.index_add_(1, base._left + offset, draw.weights * share)
    return torch.tensor([smooth_error(row) for row in nodes], dtype=torch.float64)


def _perplexity(draw: _Draw) -> Tensor:
    return torch.tensor([perplexity_of(v) for v in draw.plain(0).tolist()], dtype=torch.float64)


_METRICS: dict[str, Callable[[_Draw], Tensor]] = {
    "accuracy": lambda d: d.correct[:, -1] / d.base.size,
    "confidence": lambda d: d.confidence[:, -1] / d.base.size,
    "gap": lambda d: (d.confidence - d.correct)[:, -1] / d.base.size,
    **{name: _of_bins(name, "width_bins") for name in BINNED},
    "ace": _of_bins("ece", "mass_bins"),
    "debiased_l2": _of_bins("debiased_l2", "mass_bins"),
    "ks": _ks,
    "smooth_ece": _smooth_ece,
    "nll": lambda d: d.plain(0),
    "perplexity": _perplexity,
    "brier": lambda d: d.plain(1),
    "aurc": _risk_coverage_area,
    "auroc": _auroc,
    "risk_at_80": _risk_at_80,
    "sharpness": lambda d: d.base.n_classes * d.confidence[:, -1] / d.base.size,
    "entropy": lambda d: d.plain(2),
}
WEIGHTED = frozenset(_METRICS)
