"""Margin-based label smoothing (MbLS): Liu et al., "The Devil is in the Margin: Margin-based Label
Smoothing for Network Calibration", CVPR 2022."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from coop_cmp.losses.checks import check_number, wide


def mbls_loss(logits: Tensor, labels: Tensor, margin: float = 10.0) -> Tensor:
    """Mean over samples and classes of ``max(0, max over j of z_j - z_k - margin)``.

    The margin is in the units of the logits: 10 means less for CLIP, whose logits are 100 times a
    cosine, than for the networks of the paper. Labels do not matter.
    """
    check_number("margin", margin)
    logits, _ = wide(logits, labels)
    return F.relu(logits.amax(1, keepdim=True) - logits - margin).mean()
