"""Evaluators by name."""

from typing import Any

from dassl.utils import Registry
from yacs.config import CfgNode

EVALUATOR_REGISTRY = Registry("EVALUATOR")


def build_evaluator(cfg: CfgNode, **kwargs: Any) -> Any:
    """Make the evaluator ``cfg.TEST.EVALUATOR``."""
    note = "Loading evaluator" if cfg.VERBOSE else ""
    return EVALUATOR_REGISTRY.choose(cfg.TEST.EVALUATOR, note)(cfg, **kwargs)
