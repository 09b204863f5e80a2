"""Checks of arguments that the terms share."""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor

from coop_cmp.errors import UserError, closest

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_number(name: str, value: object, high: float = math.inf, above: bool = False) -> None:
    """Refuse what is not a finite number from 0 (or, if asked, above 0) to ``high``."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= min(high, sys.float_info.max) or (above and value == 0):  # type: ignore[operator]
        upto = f" and <= {high:g}" if math.isfinite(high) else ""
        raise UserError(
            f"{name} must be a finite number {'>' if above else '>='} 0{upto}, got {value!r}"
        )


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of the choices."""
    if value not in choices:
        expected = " or ".join(f'"{choice}"' for choice in choices)
        raise UserError(f"{name} must be {expected}, got {value!r}{closest(str(value), choices)}")


def check_shapes(logits: Tensor, labels: Tensor) -> None:
    """Refuse anything but floating-point logits [N, C] and integer labels [N]."""
    if logits.dim() != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise UserError(
            f"logits must be floating-point of shape [N, C] with C >= 1, got {logits.dtype} of "
            f"shape {tuple(logits.shape)}"
        )
    if labels.shape != logits.shape[:1] or labels.dtype not in INTEGERS:
        raise UserError(
            f"labels must be integers of shape [{len(logits)}], one per row of logits, got "
            f"{labels.dtype} of shape {tuple(labels.shape)}"
        )


def wide(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Checked logits in at least single precision, and labels that can index."""
    check_shapes(logits, labels)
    return (logits if logits.dtype == torch.float64 else logits.float()), labels.long()
