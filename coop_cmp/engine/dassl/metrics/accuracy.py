"""Top-k accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.no_grad()
def compute_accuracy(
    output: Tensor | Sequence[Tensor], target: Tensor, topk: Sequence[int] = (1,)
) -> list[Tensor]:
    """Share of samples whose label is among the k highest scores, for each k in ``topk``.

    Args:
        output: Scores [N, C]; of a tuple or list the first element counts.
        target: Labels [N].
        topk: The values of k.

    Returns:
        One tensor [1] per k, in percent.

    Example:
        >>> scores = torch.tensor([[0.1, 0.9, 0.0], [0.5, 0.3, 0.2]])
        >>> [t.item() for t in compute_accuracy(scores, torch.tensor([1, 1]), topk=(1, 2))]
        [50.0, 100.0]
    """
    if isinstance(output, tuple | list):
        output = output[0]
    assert isinstance(output, Tensor)
    ranked = output.topk(max(topk), dim=1).indices  # [N, max k]
    hit = ranked == target.view(-1, 1)
    return [hit[:, :k].float().sum().view(1) * (100.0 / len(target)) for k in topk]
