"""Optimizers and learning-rate schedules."""

from .lr_scheduler import build_lr_scheduler
from .optimizer import build_optimizer

__all__ = ["build_lr_scheduler", "build_optimizer"]
