"""The config tree."""

from yacs.config import CfgNode

from .defaults import cfg_default

__all__ = ["cfg_default", "clean_cfg", "get_cfg_default"]


def get_cfg_default() -> CfgNode:
    """A copy of the defaults; nodes that were added to ``cfg_default`` before are in it."""
    return cfg_default.clone()


def clean_cfg(cfg: CfgNode, trainer: str) -> None:
    """Drop the settings of all other trainers: every TRAINER node but NAME and ``trainer``'s."""
    for key in list(cfg.TRAINER):
        if key not in ("NAME", trainer.upper()):
            cfg.TRAINER.pop(key, None)
