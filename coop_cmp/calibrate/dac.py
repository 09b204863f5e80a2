"""Distance-aware calibration (DAC): Wang et al., "Open-Vocabulary Calibration for Fine-tuned CLIP",
ICML 2024."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coop_cmp.calibrate.checks import check_values, same_classes
from coop_cmp.errors import UserError

NEIGHBOURS = 5
FACTORS = math.exp(-2), math.exp(2)  # unit vectors are at most 2 apart
SAME_CLASS = 0.05  # a class closer than this to a base class is one


@dataclass(frozen=True)
class DAC:
    """A factor for each class [C], as :func:`class_factors` finds them."""

    factors: np.ndarray

    def __post_init__(self) -> None:
        check_values("DAC's factors", self.factors, *FACTORS)

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Each sample's logits [N, C] times the factor of the class it is predicted as.

        What is predicted does not change.
        """
        logits = same_classes(len(self.factors), logits)
        return logits * self.factors[logits.argmax(1)][:, None]


def class_factors(
    tuned: np.ndarray,
    zero_shot: np.ndarray,
    tuned_base: np.ndarray,
    zero_shot_base: np.ndarray,
) -> np.ndarray:
    """``w = exp(d0 - d)`` for each class [C]: below 1 where tuning has moved it from the base.

    ``d`` is a fifth of the sum of the distances of a class to its five nearest base classes among
    the tuned text features, ``d0`` the same among the zero-shot ones, each with neighbours of its
    own. Fewer base classes are summed and divided by five, too, as in the authors' code. A class
    that is a base class keeps 1. All features are normalised here.

    Args:
        tuned: Of the classes under test, shape [C, E].
        zero_shot: The same by zero-shot CLIP, shape [C, E].
        tuned_base: Of the classes that were trained on, shape [B, E].
        zero_shot_base: The same by zero-shot CLIP, shape [B, E].
    """
    if tuned.shape != zero_shot.shape or tuned_base.shape != zero_shot_base.shape:
        raise UserError(
            "tuned and zero-shot text features must be of the same classes and model, got shapes "
            f"{tuned.shape} and {zero_shot.shape}, base {tuned_base.shape} and "
            f"{zero_shot_base.shape}"
        )
    distances = _nearest(tuned, tuned_base)
    moved = distances - _nearest(zero_shot, zero_shot_base)
    factors = np.exp(-moved.sum(1) / NEIGHBOURS)
    return np.where(distances[:, 0] < SAME_CLASS, 1.0, factors)


def _nearest(features: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Distances [C, 5 or B] of unit vectors to their nearest base classes, in rising order."""
    unit, base = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (features, base))
    distances = np.linalg.norm(unit[:, None] - base[None], axis=2)
    return np.sort(distances, axis=1)[:, :NEIGHBOURS]
