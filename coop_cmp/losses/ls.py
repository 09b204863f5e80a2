"""Label smoothing: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision",
CVPR 2016; as a calibrator: Müller et al., "When Does Label Smoothing Help?", NeurIPS 2019."""

from __future__ import annotations

from torch import Tensor

from coop_cmp.losses.checks import wide


def ls_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """What label smoothing adds to cross-entropy, per unit of smoothing.

    The cross-entropy with targets ``(1 - a) onehot(y) + a / C`` is the plain one plus ``a`` times
    ``z_y - mean over k of z_k``, whose mean over the batch this is.
    """
    logits, labels = wide(logits, labels)
    return (logits.gather(1, labels[:, None]).squeeze(1) - logits.mean(1)).mean()
