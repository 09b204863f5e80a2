"""The one binning kernel: confidences into bins, and the calibration errors bins give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.metrics.samples import Samples

Closed = Literal["right", "left"]
MAX_BINS = 10_000


def check_bins(n_bins: int, closed: str) -> None:
    """Refuse a number of bins that is none or needs a gigabyte, and an unknown closed side."""
    if isinstance(n_bins, bool) or not isinstance(n_bins, int) or not 1 <= n_bins <= MAX_BINS:
        raise UserError(f"n_bins: expected a whole number from 1 to {MAX_BINS}, got {n_bins!r}")
    if closed not in get_args(Closed):
        raise UserError(f'closed: expected "right" or "left", got {closed!r}')


def convention(n_bins: int, closed: str) -> str:
    """The binning in words, to be printed beside every number that depends on it."""
    interval = "(lo, hi], 0 in the first" if closed == "right" else "[lo, hi), 1 in the last"
    return f"{n_bins} equal-width bins {interval}; {n_bins} equal-mass bins for ace"


def bin_edges(n_bins: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """The edges k / n_bins as numbers of ``dtype``, held in float64 [n_bins + 1]."""
    edges = torch.arange(n_bins + 1, dtype=torch.float64, device=device) / n_bins
    return edges.to(dtype).double()


def bin_index(values: Tensor, edges: Tensor, closed: Closed) -> Tensor:
    """The bin of each value: comparisons with the edges only, so no value can fall outside.

    Args:
        values: Numbers in [0, 1], float64, of any shape.
        edges: From :func:`bin_edges`.
        closed: Which end belongs to a bin; 0 and 1 are always counted.
    """
    return torch.bucketize(values, edges[1:-1].contiguous(), right=closed == "left")


@dataclass(frozen=True)
class ReliabilityBins:
    """The bins of a reliability diagram as data; every tensor is float64.

    Attributes:
        edges: Bin limits in confidence [n_bins + 1].
        count: Samples per bin [n_bins].
        confidence_sum: Sum of their confidences [n_bins].
        correct_sum: How many of them were predicted correctly [n_bins].
        closed: Which end of a bin belongs to it.
    """

    edges: Tensor
    count: Tensor
    confidence_sum: Tensor
    correct_sum: Tensor
    closed: Closed

    @property
    def confidence(self) -> Tensor:
        """Mean confidence per bin, NaN where the bin is empty [n_bins]."""
        return self.confidence_sum / self.count

    @property
    def accuracy(self) -> Tensor:
        """Share of correct predictions per bin, NaN where the bin is empty [n_bins]."""
        return self.correct_sum / self.count

    @property
    def gap(self) -> Tensor:
        """Confidence minus accuracy, positive for over-confidence, NaN if empty [n_bins]."""
        return self.confidence - self.accuracy

    @property
    def share(self) -> Tensor:
        """Share of all samples per bin [n_bins]."""
        return self.count / self.count.sum()

    @property
    def ece(self) -> float:
        """Mean gap over samples: sum of |gap| times share."""
        return self._weighted_gap.sum().item()

    @property
    def mce(self) -> float:
        """Largest |gap| of any bin that is not empty."""
        return self._filled_gap.max().item()

    @property
    def weighted_mce(self) -> float:
        """Largest |gap| times share; never above the ECE."""
        return self._weighted_gap.max().item()

    @property
    def rmsce(self) -> float:
        """Root of the mean squared gap over samples."""
        share = self.share[self.count > 0]
        return (share * self._filled_gap.square()).sum().sqrt().item()

    @property
    def average_ce(self) -> float:
        """Mean |gap| over the bins that are not empty."""
        return self._filled_gap.mean().item()

    @property
    def debiased_l2(self) -> float:
        """Root mean squared gap less what sampling noise alone would give (Kumar et al. 2019)."""
        filled = self.count > 0
        accuracy, count = self.accuracy[filled], self.count[filled]
        noise = accuracy * (1 - accuracy) / (count - 1).clamp_min(1)
        squared = (self.share[filled] * (self._filled_gap.square() - noise)).sum()
        return squared.clamp_min(0).sqrt().item()

    @property
    def _weighted_gap(self) -> Tensor:
        return (self.confidence_sum - self.correct_sum).abs() / self.count.sum()

    @property
    def _filled_gap(self) -> Tensor:
        return self.gap[self.count > 0].abs()

    def to(self, device: torch.device) -> ReliabilityBins:
        """The same bins on another device."""
        tensors = (self.edges, self.count, self.confidence_sum, self.correct_sum)
        edges, count, confidence_sum, correct_sum = (tensor.to(device) for tensor in tensors)
        return ReliabilityBins(edges, count, confidence_sum, correct_sum, self.closed)

    def __add__(self, other: ReliabilityBins) -> ReliabilityBins:
        return ReliabilityBins(
            self.edges,
            self.count + other.count,
            self.confidence_sum + other.confidence_sum,
            self.correct_sum + other.correct_sum,
            self.closed,
        )


def width_bins(samples: Samples, n_bins: int, closed: Closed) -> ReliabilityBins:
    """Bins of equal width over [0, 1]."""
    if (n_bins, closed) in samples.bins:
        return samples.bins[n_bins, closed]
    edges = bin_edges(n_bins, samples.edge_dtype, samples.confidence.device)
    index = bin_index(samples.confidence, edges, closed)
    bins = _gather(index, edges, samples.confidence, samples.correct, closed)
    samples.bins[n_bins, closed] = bins
    return bins


def mass_bins(samples: Samples, n_bins: int) -> ReliabilityBins:
    """Bins of equal size in ascending order of confidence; the first take what is left over.

    The edges reported are the smallest confidences of the bins and the largest of all.
    """
    confidence, correct = samples.ordered
    starts = split_starts(len(confidence), n_bins, confidence.device)
    index = torch.bucketize(
        torch.arange(len(confidence), device=confidence.device), starts[1:-1], right=True
    )
    last = len(confidence) - 1
    edges = confidence[starts.clamp_max(last)]
    return _gather(index, edges, confidence, correct, "left")


def split_starts(n: int, parts: int, device: torch.device | str = "cpu") -> Tensor:
    """Where each of ``parts`` runs of n items starts, and n [parts + 1]; sizes differ by 1."""
    part = torch.arange(parts + 1, device=device)
    return part * (n // parts) + part.clamp_max(n % parts)


def _gather(
    index: Tensor, edges: Tensor, confidence: Tensor, correct: Tensor, closed: Closed
) -> ReliabilityBins:
    values = torch.stack([torch.ones_like(confidence), confidence, correct])
    sums = values.new_zeros(3, len(edges) - 1).index_add_(1, index, values)
    return ReliabilityBins(edges, sums[0], sums[1], sums[2], closed)
