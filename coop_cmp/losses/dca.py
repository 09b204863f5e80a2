"""DCA: Liang et al., "Improved Trainable Calibration Method for Neural Networks on Medical Imaging
Classification", BMVC 2020."""

from __future__ import annotations

from torch import Tensor

from coop_cmp.losses.checks import wide


def dca_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """``|mean confidence - accuracy|`` of the batch; the accuracy has no gradient."""
    logits, labels = wide(logits, labels)
    confidence, predicted = logits.softmax(1).max(1)
    return (confidence.mean() - (predicted == labels).to(logits.dtype).mean()).abs()
