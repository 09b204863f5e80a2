"""Sample-adaptive logit scaling (SaLS): Murugesan et al., "Robust Calibration of Large
Vision-Language Adapters", ECCV 2024 (CLIPCalib)."""

from __future__ import annotations

import numpy as np

from coop_cmp.errors import UserError


def scale_to_zero_shot(logits: np.ndarray, zero_shot_logits: np.ndarray) -> np.ndarray:
    """Each sample's logits, stretched to the range of its zero-shot logits; no labels are needed.

    ``(z - min z) / (max z - min z) * (max z0 - min z0) + min z0``: a temperature for each sample,
    so what is predicted does not change. Equal logits of a sample stay equal. Both are [N, C].
    """
    logits = np.asarray(logits, dtype=np.float64)
    zero_shot_logits = np.asarray(zero_shot_logits, dtype=np.float64)
    if logits.ndim != 2 or zero_shot_logits.shape != logits.shape:
        raise UserError(
            f"expected logits [N, C] and zero-shot logits of the same shape, got {logits.shape} "
            f"and {zero_shot_logits.shape}"
        )
    least = logits.min(1, keepdims=True)
    span = np.ptp(logits, axis=1, keepdims=True)
    goal = np.ptp(zero_shot_logits, axis=1, keepdims=True)
    factor = np.divide(goal, span, out=np.zeros_like(span), where=span > 0)
    return (logits - least) * factor + zero_shot_logits.min(1, keepdims=True)
