"""The binned metrics over batches, in memory that does not grow with their number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.metrics.bins import Closed, ReliabilityBins, check_bins, width_bins
from coop_cmp.metrics.classwise import class_residuals, per_class_ece
from coop_cmp.metrics.panel import perplexity_of
from coop_cmp.metrics.samples import Samples


class StreamingCalibration:
    """Collects batches and gives the metrics of all of them pooled.

    It keeps sums per bin and per class and bin: C x n_bins numbers. Metrics that rank the whole
    test set (``ace``, ``ks``, ``aurc``, ...) need all samples and come from calibration_report.

    Args:
        n_bins: Equal-width bins.
        closed: Which end of a bin belongs to it.
        from_logits: Whether the batches hold logits.
    """

    def __init__(
        self, n_bins: int = 10, closed: Closed = "right", *, from_logits: bool = False
    ) -> None:
        check_bins(n_bins, closed)
        self.n_bins, self.closed, self.from_logits = n_bins, closed, from_logits
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self.bins: ReliabilityBins | None = None
        self._residuals = torch.zeros(0, self.n_bins, dtype=torch.float64)
        self._sums = torch.zeros(3, dtype=torch.float64)

    def update(self, probs: Any, labels: Any) -> None:
        """Add a batch: probabilities or logits [B, C] and labels [B]."""
        samples = Samples(probs, labels, self.from_logits)
        bins = width_bins(samples, self.n_bins, self.closed)
        sums = torch.stack([values.sum() for values in (samples.nll, *samples.spread)])
        self._add(bins, class_residuals(samples, self.n_bins, self.closed), sums)

    def merge(self, other: StreamingCalibration) -> None:
        """Add all that another collector has seen, for example on another device."""
        if (self.n_bins, self.closed) != (other.n_bins, other.closed):
            raise UserError(
                f"merge: expected {self.n_bins} bins closed {self.closed}, got {other.n_bins} "
                f"bins closed {other.closed}"
            )
        if other.bins is not None:
            self._add(other.bins, other._residuals, other._sums)

    def compute(self) -> dict[str, float]:
        """The metrics of everything seen so far, under the names of calibration_report."""
        if self.bins is None:
            raise UserError("compute: no samples yet; call update first")
        n_samples = int(self.bins.count.sum())
        accuracy = self.bins.correct_sum.sum().item() / n_samples
        confidence = self.bins.confidence_sum.sum().item() / n_samples
        nll, brier, entropy = (self._sums / n_samples).tolist()
        return {
            "accuracy": accuracy,
            "confidence": confidence,
            "gap": confidence - accuracy,
            "ece": self.bins.ece,
            "mce": self.bins.mce,
            "weighted_mce": self.bins.weighted_mce,
            "rmsce": self.bins.rmsce,
            "average_ce": self.bins.average_ce,
            "nll": nll,
            "perplexity": perplexity_of(nll),
            "brier": brier,
            "sharpness": len(self._residuals) * confidence,
            "entropy": entropy,
            "classwise_ece": per_class_ece(self._residuals, n_samples).mean().item(),
        }

    def _add(self, bins: ReliabilityBins, residuals: Tensor, sums: Tensor) -> None:
        if self.bins is None:
            self.bins, self._residuals, self._sums = bins, residuals, sums
            return
        if residuals.shape != self._residuals.shape:
            raise UserError(
                f"probs: expected {len(self._residuals)} classes as in the batches before, got "
                f"{len(residuals)}"
            )
        device = self._sums.device
        self.bins = self.bins + bins.to(device)
        self._residuals = self._residuals + residuals.to(device)
        self._sums = self._sums + sums.to(device)
