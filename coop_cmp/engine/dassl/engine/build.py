"""Trainers by name."""

from typing import Any

from dassl.utils import Registry, check_availability
from yacs.config import CfgNode

TRAINER_REGISTRY = Registry("TRAINER")


def build_trainer(cfg: CfgNode) -> Any:
    """Make the trainer ``cfg.TRAINER.NAME``."""
    check_availability(cfg.TRAINER.NAME, TRAINER_REGISTRY.registered_names())
    if cfg.VERBOSE:
        print(f"Loading trainer: {cfg.TRAINER.NAME}")
    return TRAINER_REGISTRY.get(cfg.TRAINER.NAME)(cfg)
