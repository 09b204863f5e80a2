"""The zero-shot range penalty: Murugesan et al., "Robust Calibration of Large Vision-Language
Adapters", ECCV 2024 (CLIPCalib; "Penalty" there)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from coop_cmp.losses.checks import wide
from coop_cmp.losses.zsnorm import zero_shot_bounds


def zspenalty_loss(logits: Tensor, labels: Tensor, zero_shot_logits: Tensor) -> Tensor:
    """Mean over samples and classes of how far a logit lies outside the zero-shot range.

    ``max(0, z_k - max z0) + max(0, min z0 - z_k)``, with the zero-shot logits ``z0`` of the image.
    """
    logits, _ = wide(logits, labels)
    low, high = zero_shot_bounds(logits, zero_shot_logits)
    return (F.relu(logits - high) + F.relu(low - logits)).mean()
