"""Evaluators by name."""

from typing import Any

from dassl.utils import Registry, check_availability
from yacs.config import CfgNode

EVALUATOR_REGISTRY = Registry("EVALUATOR")


def build_evaluator(cfg: CfgNode, **kwargs: Any) -> Any:
    """Make the evaluator ``cfg.TEST.EVALUATOR``."""
    check_availability(cfg.TEST.EVALUATOR, EVALUATOR_REGISTRY.registered_names())
    if cfg.VERBOSE:
        print(f"Loading evaluator: {cfg.TEST.EVALUATOR}")
    return EVALUATOR_REGISTRY.get(cfg.TEST.EVALUATOR)(cfg, **kwargs)
