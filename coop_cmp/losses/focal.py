"""The focal loss: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017; as a calibrator:
Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from coop_cmp.losses.checks import check_number, wide


def focal_loss(logits: Tensor, labels: Tensor, gamma: float = 3.0) -> Tensor:
    """Mean over the batch of ``-(1 - p_y)^gamma log p_y``; it replaces cross-entropy."""
    check_number("gamma", gamma)
    return focal_mean(true_log_probability(logits, labels), gamma)


def true_log_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """``log p_y`` in single precision, shape [N]."""
    logits, labels = wide(logits, labels)
    return F.log_softmax(logits, dim=1).gather(1, labels[:, None]).squeeze(1)


def focal_mean(log_p: Tensor, gamma: float | Tensor) -> Tensor:
    """The focal loss of log-probabilities [N], with one exponent or one for each sample."""
    # Away from 0, where the slope of a power below 1 is infinite.
    missing = -torch.expm1(log_p).clamp(max=-torch.finfo(log_p.dtype).tiny)
    return -(missing**gamma * log_p).mean()
