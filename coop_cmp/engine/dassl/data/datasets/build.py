"""Data sets by name."""

from typing import Any

from dassl.utils import Registry
from yacs.config import CfgNode

DATASET_REGISTRY = Registry("DATASET")


def build_dataset(cfg: CfgNode) -> Any:
    """Make the data set ``cfg.DATASET.NAME``."""
    note = "Loading dataset" if cfg.VERBOSE else ""
    return DATASET_REGISTRY.choose(cfg.DATASET.NAME, note)(cfg)
