"""Learning-rate schedules, stepped once per epoch, with an optional warm-up before them."""

from __future__ import annotations

from typing import Any

import torch
from dassl.utils import check_availability
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, MultiStepLR, StepLR
from yacs.config import CfgNode

from coop_cmp.config.dassl_keys import SCHEDULES, WARMUPS


class _WarmupScheduler(LRScheduler):
    """Sets the rate itself for ``warmup_epoch`` epochs, then hands over to ``successor``."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, successor: LRScheduler, warmup_epoch: int
    ) -> None:
        self.successor = successor
        self.warmup_epoch = warmup_epoch
        super().__init__(optimizer)

    def warmup_lr(self, base_lr: float) -> float:
        """The rate of the current epoch (``last_epoch``) of the warm-up."""
        raise NotImplementedError

    def get_lr(self) -> list[float]:  # type: ignore[override]
        if self.last_epoch >= self.warmup_epoch:
            return self.successor.get_last_lr()  # type: ignore[return-value]
        return [self.warmup_lr(base_lr) for base_lr in self.base_lrs]  # type: ignore[arg-type]

    def step(self, epoch: int | None = None) -> None:
        if self.last_epoch < self.warmup_epoch:
            super().step(epoch)
        else:
            self.successor.step(epoch)
            self._last_lr = self.successor.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state["successor_state"] = state.pop("successor").state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        # Upstream stores the successor itself; it arrives here as an inert object with its fields.
        legacy = vars(state.pop("successor")) if "successor" in state else {}
        successor_state = state.pop("successor_state", legacy)
        super().load_state_dict(state)
        self.successor.load_state_dict(
            {key: value for key, value in successor_state.items() if key != "optimizer"}
        )


class ConstantWarmupScheduler(_WarmupScheduler):
    """A small constant rate first."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        successor: LRScheduler,
        warmup_epoch: int,
        cons_lr: float,
    ) -> None:
        self.cons_lr = cons_lr
        super().__init__(optimizer, successor, warmup_epoch)

    def warmup_lr(self, base_lr: float) -> float:
        return self.cons_lr


class LinearWarmupScheduler(_WarmupScheduler):
    """``min_lr`` in the first epoch, then a straight line up to the base rate."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        successor: LRScheduler,
        warmup_epoch: int,
        min_lr: float,
    ) -> None:
        self.min_lr = min_lr
        super().__init__(optimizer, successor, warmup_epoch)

    def warmup_lr(self, base_lr: float) -> float:
        return base_lr * self.last_epoch / self.warmup_epoch if self.last_epoch else self.min_lr


def build_lr_scheduler(optimizer: torch.optim.Optimizer, optim_cfg: CfgNode) -> LRScheduler:
    """Make the schedule ``optim_cfg.LR_SCHEDULER``: single_step, multi_step or cosine."""
    check_availability(optim_cfg.LR_SCHEDULER, SCHEDULES)
    scheduler = _main_scheduler(optimizer, optim_cfg)
    if optim_cfg.WARMUP_EPOCH <= 0:
        return scheduler

    check_availability(optim_cfg.WARMUP_TYPE, WARMUPS)
    if not optim_cfg.WARMUP_RECOUNT:
        scheduler.last_epoch = optim_cfg.WARMUP_EPOCH
    if optim_cfg.WARMUP_TYPE == "constant":
        return ConstantWarmupScheduler(
            optimizer, scheduler, optim_cfg.WARMUP_EPOCH, optim_cfg.WARMUP_CONS_LR
        )
    return LinearWarmupScheduler(
        optimizer, scheduler, optim_cfg.WARMUP_EPOCH, optim_cfg.WARMUP_MIN_LR
    )


def _main_scheduler(optimizer: torch.optim.Optimizer, cfg: CfgNode) -> LRScheduler:
    if cfg.LR_SCHEDULER == "cosine":
        return CosineAnnealingLR(optimizer, float(cfg.MAX_EPOCH))  # type: ignore[arg-type]

    steps = cfg.STEPSIZE if isinstance(cfg.STEPSIZE, list | tuple) else [cfg.STEPSIZE]
    if cfg.LR_SCHEDULER == "multi_step":
        return MultiStepLR(optimizer, milestones=list(steps), gamma=cfg.GAMMA)
    step = steps[-1] if steps[-1] > 0 else cfg.MAX_EPOCH
    return StepLR(optimizer, step_size=step, gamma=cfg.GAMMA)
