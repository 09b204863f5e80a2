"""The Brier score as a loss: Brier, "Verification of Forecasts Expressed in Terms of Probability",
Monthly Weather Review 1950."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from coop_cmp.losses.checks import wide


def brier_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the batch of ``sum over k of (p_k - 1[k = y])^2``; it replaces cross-entropy."""
    logits, labels = wide(logits, labels)
    distance = logits.softmax(1) - F.one_hot(labels, logits.shape[1])
    return distance.square().sum(1).mean()
