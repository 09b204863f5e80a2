"""Bins of confidences, and the calibration errors they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from coop_cmp.errors import UserError

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

    Bins of several sets of samples have a dimension in front, and so have all their errors.

    Attributes:
        edges: Bin limits in confidence [..., n_bins + 1].
        count: Samples per bin [..., n_bins].
        confidence_sum: Sum of their confidences [..., n_bins].
        correct_sum: How many of them were predicted correctly [..., n_bins].
    """

    edges: Tensor
    count: Tensor
    confidence_sum: Tensor
    correct_sum: Tensor

    @property
    def confidence(self) -> Tensor:
        """Mean confidence per bin, NaN where the bin is empty."""
        return self.confidence_sum / self.count

    @property
    def accuracy(self) -> Tensor:
        """Share of correct predictions per bin, NaN where the bin is empty."""
        return self.correct_sum / self.count

    @property
    def gap(self) -> Tensor:
        """Confidence minus accuracy, positive for over-confidence, NaN if empty."""
        return self.confidence - self.accuracy

    @property
    def share(self) -> Tensor:
        """Share of all samples per bin."""
        return self.count / self.count.sum(-1, keepdim=True)

    @property
    def ece(self) -> Tensor:
        """Mean gap over samples: sum of |gap| times share."""
        return self._weighted_gap.sum(-1)

    @property
    def mce(self) -> Tensor:
        """Largest |gap| of any bin that is not empty."""
        return self._filled_gap.amax(-1)

    @property
    def weighted_mce(self) -> Tensor:
        """Largest |gap| times share; never above the ECE."""
        return self._weighted_gap.amax(-1)

    @property
    def rmsce(self) -> Tensor:
        """Root of the mean squared gap over samples."""
        return (self.share * self._filled_gap.square()).sum(-1).sqrt()

    @property
    def average_ce(self) -> Tensor:
        """Mean |gap| over the bins that are not empty."""
        return self._filled_gap.sum(-1) / (self.count > 0).sum(-1)

    @property
    def debiased_l2(self) -> Tensor:
        """Root mean squared gap less what sampling noise alone would give (Kumar et al. 2019)."""
        accuracy = self.correct_sum / self.count.clamp_min(1)
        noise = accuracy * (1 - accuracy) / (self.count - 1).clamp_min(1)
        return (self.share * (self._filled_gap.square() - noise)).sum(-1).clamp_min(0).sqrt()

    @property
    def _weighted_gap(self) -> Tensor:
        total = self.count.sum(-1, keepdim=True)
        return (self.confidence_sum - self.correct_sum).abs() / total

    @property
    def _filled_gap(self) -> Tensor:
        """|gap|, 0 where the bin is empty."""
        return (self.confidence_sum - self.correct_sum).abs() / self.count.clamp_min(1)

    def __getitem__(self, index: int) -> ReliabilityBins:
        """Return the bins of one of several sets of samples."""
        return ReliabilityBins(self.edges[index], *(sums[index] for sums in self._sums))

    def __add__(self, other: ReliabilityBins) -> ReliabilityBins:
        return ReliabilityBins(self.edges, *map(torch.add, self._sums, other._sums))

    @property
    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.count, self.confidence_sum, self.correct_sum


def split_starts(size: Tensor, parts: int) -> Tensor:
    """Return where each of ``parts`` runs of ``size`` items starts, and the size [..., parts + 1].

    The lengths of the runs differ by 1 at most, and the first are the longer ones.
    """
    part, size = torch.arange(parts + 1, device=size.device), size[..., None]
    return part * (size // parts) + torch.minimum(part, size % parts)
