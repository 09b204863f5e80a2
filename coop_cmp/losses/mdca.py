"""MDCA: Hebbalaguppe et al., "A Stitch in Time Saves Nine: A Train-Time Regularizing Loss for
Improved Neural Network Calibration", CVPR 2022."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from coop_cmp.losses.checks import wide


def mdca_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over classes of ``|mean over the batch of p_k - share of the class in the batch|``.

    With many more classes than samples most shares are 0, and the term is noisy.
    """
    logits, labels = wide(logits, labels)
    shares = F.one_hot(labels, logits.shape[1]).to(logits.dtype).mean(0)
    return (logits.softmax(1).mean(0) - shares).abs().mean()
