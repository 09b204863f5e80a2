"""Checks of predictions that the calibrators share."""

from __future__ import annotations

import numpy as np

from coop_cmp.errors import UserError


def check_logits(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits [N, C] in double precision and labels [N], or a UserError."""
    logits, labels = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not len(labels):
        raise UserError(
            f"expected logits [N, C] and labels [N] with N >= 1, got shapes {logits.shape} and "
            f"{labels.shape}"
        )
    if not np.isfinite(logits).all():
        raise UserError("logits must be finite, got NaN or infinity")
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise UserError("labels must be class indices from 0")
    if labels.max() >= logits.shape[1]:
        raise UserError(f"labels must lie in [0, {logits.shape[1]}), got {labels.max()}")
    return logits, labels


def check_values(name: str, values: np.ndarray, low: float, high: float, dims: int = 1) -> None:
    """Refuse values that no fit can give: not finite, or out of range."""
    is_number = np.issubdtype(values.dtype, np.floating) and values.ndim == dims
    if not is_number or not ((low <= values) & (values <= high)).all():
        raise UserError(f"{name} must be numbers from {low:g} to {high:g}")


def same_classes(fitted: int, logits: np.ndarray) -> np.ndarray:
    """Logits for a calibrator that was fitted to so many classes."""
    logits = np.asarray(logits, dtype=np.float64)
    if logits.ndim != 2 or logits.shape[1] != fitted:
        raise UserError(
            f"this calibrator has values for each of {fitted} classes and cannot be used on "
            f"logits of shape {logits.shape}; a temperature and SaLS can"
        )
    return logits
