"""Where tensors live: choosing a device, and copying to it without waiting."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from coop_cmp.errors import UserError

SMALL = 5_000_000  # parameters beside the tables of tokens


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


def set_threads(model: nn.Module, device: torch.device) -> None:
    """Run a small model on one thread of a CPU, unless OMP_NUM_THREADS says otherwise.

    Its operations take less time than the threads need to meet, and far less on a busy machine.
    """
    if device.type != "cpu" or "OMP_NUM_THREADS" in os.environ:
        return
    tables = sum(
        p.numel() for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()
    )
    if sum(p.numel() for p in model.parameters()) - tables < SMALL:
        torch.set_num_threads(1)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device; a GPU's host goes on at once, since it copies from pinned memory."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
    return pinned.to(device, non_blocking=True)
