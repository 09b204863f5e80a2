"""What half precision takes of a gradient that is added to a larger one."""

from __future__ import annotations

import torch
from torch import Tensor

from coop_cmp.checkout.cross_entropy import Call

USUAL_SCALE = 2.0**16  # of a gradient scaler


def lost_share(call: Call, gradient: Tensor) -> float | None:
    """The share of a gradient that is lost where it is added to that of a cross-entropy.

    Args:
        call: A cross-entropy whose logits are in half precision, and so are their gradients.
        gradient: By the same logits as [N, C], in single precision.

    Returns:
        The norm of the error over that of the gradient; None if the gradient is 0.
    """
    if not gradient.any():
        return None
    logits = call.input.detach().requires_grad_()
    (plain,) = torch.autograd.grad(call.again(logits), logits)
    scale = USUAL_SCALE if torch.is_autocast_enabled() else 1.0
    plain, gradient = call.rows(plain) * scale, gradient * scale
    added = (plain + gradient.to(plain.dtype)).float() - plain.float()
    return float((added - gradient).norm() / gradient.norm())
