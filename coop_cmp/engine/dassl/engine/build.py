"""Trainers by name."""

from typing import Any

from dassl.utils import Registry
from yacs.config import CfgNode

TRAINER_REGISTRY = Registry("TRAINER")


def build_trainer(cfg: CfgNode) -> Any:
    """Make the trainer ``cfg.TRAINER.NAME``."""
    note = "Loading trainer" if cfg.VERBOSE else ""
    return TRAINER_REGISTRY.choose(cfg.TRAINER.NAME, note)(cfg)
