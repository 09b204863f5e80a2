"""Rectified Adam (Liu et al., ICLR 2020): torch's, with the weight decay that Dassl's has."""

from __future__ import annotations

from typing import Any

import torch


class RAdam(torch.optim.RAdam):
    """Adam whose steps are rectified, with decoupled weight decay.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate.
        betas: Decay of the two moments.
        eps: Added to the denominator.
        weight_decay: Share of the learning rate by which weights shrink.
        degenerated_to_sgd: While the second moment rests on too few steps, step along the first
            moment alone; otherwise do not step at all.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        degenerated_to_sgd: bool = True,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, decoupled_weight_decay=True)
        self.degenerated_to_sgd = degenerated_to_sgd

    def step(self, closure: Any = None) -> Any:
        """Make a step; the moments learn from it even where the weights stay."""
        rates = [group["lr"] for group in self.param_groups]
        if not self.degenerated_to_sgd:
            for group in self.param_groups:
                group["lr"] *= self._rectifiable(group)
        loss = super().step(closure)
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
        return loss

    def _rectifiable(self, group: dict[str, Any]) -> bool:
        """Whether the average behind the second moment will be longer than five steps."""
        step = 1 + max(
            (int(self.state[p]["step"]) for p in group["params"] if self.state[p]), default=0
        )
        beta = group["betas"][1]
        longest = 2 / (1 - beta) - 1
        return longest - 2 * step * beta**step / (1 - beta**step) > 5
