"""Evaluation of a whole split."""

from .build import EVALUATOR_REGISTRY, build_evaluator
from .evaluator import Classification, EvaluatorBase

__all__ = ["EVALUATOR_REGISTRY", "Classification", "EvaluatorBase", "build_evaluator"]
