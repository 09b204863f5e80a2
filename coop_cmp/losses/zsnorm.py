"""Zero-shot normalisation (ZS-Norm): Murugesan et al., "Robust Calibration of Large Vision-Language
Adapters", ECCV 2024 (CLIPCalib)."""

from __future__ import annotations

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.losses.checks import wide
from coop_cmp.losses.focal import true_log_probability


def zsnorm_loss(logits: Tensor, labels: Tensor, zero_shot_logits: Tensor) -> Tensor:
    """The cross-entropy of :func:`to_zero_shot_range`; it replaces that of the logits themselves.

    It does not change when a sample's logits are stretched or shifted, so their scale is not
    trained; the test uses them as they are.
    """
    logits, labels = wide(logits, labels)
    return -true_log_probability(to_zero_shot_range(logits, zero_shot_logits), labels).mean()


def to_zero_shot_range(logits: Tensor, zero_shot_logits: Tensor) -> Tensor:
    """``(z - min z) / (max z - min z) * (max z0 - min z0) + min z0`` of each sample, [N, C].

    Equal logits of a sample, which have no range, become the smallest of its zero-shot logits.
    """
    low, high = zero_shot_bounds(logits, zero_shot_logits)
    least, most = logits.amin(1, keepdim=True), logits.amax(1, keepdim=True)
    span = (most - least).masked_fill(most == least, 1)
    return (logits - least) / span * (high - low) + low


def zero_shot_bounds(logits: Tensor, zero_shot_logits: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest zero-shot logit of each sample, [N, 1] each, without gradient."""
    if zero_shot_logits.shape != logits.shape:
        raise UserError(
            f"zero_shot_logits must have the shape of logits, {tuple(logits.shape)}, got "
            f"{tuple(zero_shot_logits.shape)}"
        )
    low, high = torch.aminmax(zero_shot_logits.detach().to(logits.dtype), dim=1, keepdim=True)
    return low, high
