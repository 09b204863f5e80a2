"""The entropy penalty: Pereyra et al., "Regularizing Neural Networks by Penalizing Confident Output
Distributions", ICLR workshop 2017."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from coop_cmp.losses.checks import wide


def ecp_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over the batch of ``-H(p)``, with the entropy ``H(p) = -sum over k of p_k log p_k``.

    The sum runs over the classes, as in the paper; implementations that average over them have a
    term C times smaller.

    Args:
        logits: Shape [N, C].
        labels: Shape [N]; the term does not depend on them.
    """
    logits, _ = wide(logits, labels)
    log_p = F.log_softmax(logits, dim=1)
    return (log_p.exp() * log_p).sum(1).mean()
