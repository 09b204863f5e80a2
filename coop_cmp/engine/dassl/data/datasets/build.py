"""Data sets by name."""

from typing import Any

from dassl.utils import Registry, check_availability
from yacs.config import CfgNode

DATASET_REGISTRY = Registry("DATASET")


def build_dataset(cfg: CfgNode) -> Any:
    """Make the data set ``cfg.DATASET.NAME``."""
    check_availability(cfg.DATASET.NAME, DATASET_REGISTRY.registered_names())
    if cfg.VERBOSE:
        print(f"Loading dataset: {cfg.DATASET.NAME}")
    return DATASET_REGISTRY.get(cfg.DATASET.NAME)(cfg)
