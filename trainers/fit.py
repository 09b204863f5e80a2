"""What training recorded: curves, the fit to the training views, and the effect of a term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MOST_POINTS = 200


class Fit:
    """Means over training steps, kept on the device until they are read."""

    def __init__(self) -> None:
        self._totals: dict[str, tuple[Tensor | float, int]] = {}
        self._curves: dict[str, dict[int, float]] = {}

    def add(self, name: str, value: Tensor) -> None:
        """Count the value of one step."""
        total, count = self._totals.get(name, (0.0, 0))
        self._totals[name] = total + value.detach(), count + 1

    def state(self) -> dict[str, Any]:
        """Read all values, for a checkpoint."""
        totals = {name: (float(total), count) for name, (total, count) in self._totals.items()}
        return {"totals": totals, "curves": self._curves}

    def restore(self, state: Mapping[str, Any], forget: Sequence[str] = ()) -> None:
        """Go on from what :meth:`state` gave, but start some means anew."""
        self._totals = {k: total for k, total in state["totals"].items() if k not in forget}
        self._curves = dict(state["curves"])

    def means(self) -> dict[str, float]:
        """Read the means of all values by name."""
        return {name: float(total) / count for name, (total, count) in self._totals.items()}

    def note(self, name: str, epoch: int, value: float) -> None:
        """Keep the mean of an epoch so far, in place of the one before."""
        self._curves.setdefault(name, {})[epoch] = value

    def curves(self) -> dict[str, list[list[float]]]:
        """Return the means of the epochs by name, as [epoch, mean]; at most ``MOST_POINTS``."""
        found = {}
        for name, curve in self._curves.items():
            points = [[epoch + 1, float(f"{mean:.5g}")] for epoch, mean in curve.items()]
            step = -(-len(points) // MOST_POINTS)
            found[name] = points[::-1][::step][::-1]  # the last one is always there
        return found


def gradient_ratio(term: Tensor, logits: Tensor, inside: Tensor, label: Tensor) -> Tensor:
    """The L1 size of a term's gradient in the logits, relative to that of the cross-entropy.

    The cross-entropy's is the mean over the batch of ``2 (1 - P(y))``.

    Args:
        term: The weighted term, computed from the logits; its graph is kept.
        logits: Those that predict, [B, C].
        inside: Those inside the cross-entropy, which rise with the others one to one, [B, C].
        label: [B]
    """
    (gradient,) = torch.autograd.grad(term, logits, retain_graph=True)
    missing = 1 - inside.detach().softmax(1).gather(1, label[:, None])  # [B, 1]
    return gradient.abs().sum() / (2 * missing.mean()).clamp(min=torch.finfo(missing.dtype).tiny)
