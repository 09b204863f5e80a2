"""MMCE: Kumar et al., "Trainable Calibration Measures for Neural Networks from Kernel Mean
Embeddings", ICML 2018; the weighted form."""

from __future__ import annotations

import torch
from torch import Tensor

from coop_cmp.losses.checks import check_positive, wide


def mmce_loss(logits: Tensor, labels: Tensor, width: float = 0.4) -> Tensor:
    """The kernel distance between the confidences of correct and of wrong predictions.

    With confidences ``c``, the kernel ``k(a, b) = exp(-|a - b| / width)`` and the weights
    ``w = (1 - c) / n`` for the ``n`` correct and ``-c / m`` for the ``m`` wrong samples of the
    batch, the term is the square root of the sum over pairs of ``w_i w_j k(c_i, c_j)``.

    Args:
        logits: Shape [N, C].
        labels: Shape [N].
        width: Of the kernel.
    """
    check_positive("width", width)
    logits, labels = wide(logits, labels)
    confidence, predicted = logits.softmax(1).max(1)
    correct = predicted == labels
    counts = torch.where(correct, correct.sum(), (~correct).sum())
    weights = (correct.to(confidence.dtype) - confidence) / counts  # [N]
    kernel = torch.exp(-(confidence[:, None] - confidence).abs() / width)  # [N, N]
    squared = (weights[:, None] * kernel * weights).sum()
    # Away from 0, where the slope of the root is infinite.
    return squared.clamp(min=1e-12).sqrt()
