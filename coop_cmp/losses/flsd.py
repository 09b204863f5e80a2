"""The sample-dependent focal loss (FLSD): Mukhoti et al., "Calibrating Deep Neural Networks using
Focal Loss", NeurIPS 2020."""

from __future__ import annotations

import torch
from torch import Tensor

from coop_cmp.losses.checks import check_number
from coop_cmp.losses.focal import focal_mean, true_log_probability


def flsd_loss(
    logits: Tensor,
    labels: Tensor,
    gamma: float = 3.0,
    gamma_unsure: float = 5.0,
    threshold: float = 0.2,
) -> Tensor:
    """The focal loss with another exponent where the model is unsure; it replaces cross-entropy.

    ``gamma`` is that of a sample whose ``p_y`` reaches the threshold.
    """
    check_number("gamma", gamma)
    check_number("gamma_unsure", gamma_unsure)
    check_number("threshold", threshold, high=1)
    log_p = true_log_probability(logits, labels)
    unsure = log_p.detach().exp() < threshold
    exponents = torch.full_like(log_p, gamma).masked_fill(unsure, gamma_unsure)
    return focal_mean(log_p, exponents)
