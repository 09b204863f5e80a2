"""Where tensors live: choosing a device, and copying to it without waiting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from coop_cmp.errors import UserError


def choose_device(cfg: Any) -> torch.device:
    """The configured device, or the best there is (the CPU if USE_CUDA is off).

    A GPU with a number becomes the current one: what names no number must not land on another.
    """
    if not cfg.DEVICE:
        if cfg.USE_CUDA and torch.cuda.is_available():
            return torch.device("cuda")
        has_mps = cfg.USE_CUDA and torch.backends.mps.is_available()
        return torch.device("mps" if has_mps else "cpu")
    try:
        device = torch.device(cfg.DEVICE)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f'device "{cfg.DEVICE}" cannot be used: {reason}') from error
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device; a GPU's host goes on at once, since it copies from pinned memory."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
    return pinned.to(device, non_blocking=True)
