"""Numbers of training steps that stay on their device until somebody wants to see them.

Reading a number makes the host wait until the device has computed it, and then the device for the
host. So they are collected and read together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

MOST = 1000  # losses that wait unseen, where nobody prints


def read(tensors: Sequence[Tensor]) -> list[float]:
    """The values of tensors with one element each, in one transfer per device."""
    places: defaultdict[torch.device, list[int]] = defaultdict(list)
    for i, tensor in enumerate(tensors):
        places[tensor.device].append(i)
    values = [0.0] * len(tensors)
    for wanted in places.values():
        together = torch.stack([tensors[i].detach().reshape(()) for i in wanted])
        for i, value in zip(wanted, together.tolist(), strict=True):
            values[i] = value
    return values


class UnreadLosses:
    """Losses of which nobody knows yet whether they are finite."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._places: list[str] = []

    def note(self, loss: Tensor, place: str) -> None:
        """Keep a loss, and where in the training it was."""
        self.tensors.append(loss.detach() if loss.numel() == 1 else loss.detach().sum())
        self._places.append(place)
        if len(self.tensors) >= MOST:
            self.check()

    def check(self, values: Sequence[float] | None = None) -> None:
        """Look at all losses, or at their values if they have been read already.

        Raises:
            FloatingPointError: One of them is infinite or NaN; names the first.
        """
        found = read(self.tensors) if values is None else values
        places = self._places
        self.tensors, self._places = [], []
        for value, place in zip(found, places, strict=True):
            if not math.isfinite(value):
                raise FloatingPointError(f"Loss is infinite or NaN! {place}".strip())
