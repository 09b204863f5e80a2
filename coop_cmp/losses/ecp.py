"""The entropy penalty: Pereyra et al., "Regularizing Neural Networks by Penalizing Confident Output
Distributions", ICLR workshop 2017."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from coop_cmp.losses.checks import wide


def ecp_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the batch of ``sum over k of p_k log p_k``; labels do not matter.

    Implementations that average over the classes have a term C times smaller than the paper's.
    """
    logits, _ = wide(logits, labels)
    log_p = F.log_softmax(logits, dim=1)
    return (log_p.exp() * log_p).sum(1).mean()
