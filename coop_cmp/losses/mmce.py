"""MMCE: Kumar et al., "Trainable Calibration Measures for Neural Networks from Kernel Mean
Embeddings", ICML 2018; the weighted form."""

from __future__ import annotations

import torch
from torch import Tensor

from coop_cmp.losses.checks import check_number, wide


def mmce_loss(logits: Tensor, labels: Tensor, width: float = 0.4) -> Tensor:
    """The kernel distance between the confidences of correct and of wrong predictions.

    With the kernel ``k(a, b) = exp(-|a - b| / width)``, the weights ``1 - c`` of the ``m`` correct
    and ``c`` of the ``n`` wrong samples with confidences ``c``, and S the mean over a kind of pairs
    of the product of their weights and kernel, the term is the square root of
    ``S_mm / m^2 + S_nn / n^2 - 2 S_mn / (m n)``; 0 for a batch that is all correct or all wrong.
    Dividing the means by the counts once more is what the authors' code does, and the published
    weights of the term rely on it.
    """
    check_number("width", width, above=True)
    logits, labels = wide(logits, labels)
    confidence, predicted = logits.softmax(1).max(1)
    correct = predicted == labels
    kernel = torch.exp(-(confidence[:, None] - confidence).abs() / width)  # [N, N]
    right, wrong = (1 - confidence) * correct, confidence * ~correct  # [N]
    m, n = (kind.to(confidence.dtype).sum() for kind in (correct, ~correct))

    def part(a: Tensor, b: Tensor, pairs: Tensor) -> Tensor:
        return (a[:, None] * kernel * b).sum() / pairs.clamp(min=1) / (pairs + 1e-5)

    squared = part(right, right, m * m) + part(wrong, wrong, n * n) - 2 * part(right, wrong, m * n)
    # Away from 0, where the slope of the root is infinite.
    distance = (squared.clamp(min=0) + 1e-10).sqrt()
    return distance.where((m > 0) & (n > 0), 0)
