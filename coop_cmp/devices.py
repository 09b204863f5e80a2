"""Where tensors live: choosing a device, and copying to it without waiting."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coop_cmp.errors import UserError

BUDGET = 4 << 30  # bytes of activations where the device does not say what is free


def choose_device(cfg: Any) -> torch.device:
    """The configured device, or the fastest one found (the CPU if USE_CUDA is off).

    A GPU with a number becomes the current one: what names no number must not land on another.
    """
    name = cfg.DEVICE or _best(cfg.USE_CUDA)
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("its tensors hold no numbers")
        torch.zeros(1, device=device)
        if device.type == "mps":
            check_attention(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f'device "{name}" cannot be used: {reason}') from error
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device


def _best(use_gpu: bool) -> str:
    if use_gpu and torch.cuda.is_available():
        return "cuda"
    return "mps" if use_gpu and torch.backends.mps.is_available() else "cpu"


@lru_cache  # a run asks more than once
@torch.no_grad()
def check_attention(device: torch.device) -> None:
    """Refuse a device with incorrect attention, as MPS has in several releases of torch.

    Each release fails silently for different inputs: permuted ones (pytorch/pytorch#163597 and
    181133), a mask for each sequence (184180), the causal mask in half precision (195910). So what
    the towers need is tried.
    """
    for dtype, length in product((torch.float32, torch.float16), (3, 64)):
        generator = torch.Generator().manual_seed(0)
        packed = torch.randn(5, length, 3, 2, 64, generator=generator).to(dtype)
        hidden = torch.rand(5, 1, length, length, generator=generator) < 0.5
        hidden &= ~torch.eye(length, dtype=torch.bool)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        for mask, causal in ((hidden, False), (future, True)):
            query, key, value = packed.float().permute(2, 0, 3, 1, 4)  # [5, 2, length, 64]
            scores = (query @ key.mT / 8).masked_fill(mask, -math.inf)
            expected = scores.softmax(-1) @ value
            bias = torch.zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf).to(device)
            query, key, value = packed.to(device).permute(2, 0, 3, 1, 4)
            found = F.scaled_dot_product_attention(
                query, key, value, None if causal else bias, is_causal=causal
            )
            if not (found.float().cpu() - expected).abs().max() < 0.02:
                raise UserError(
                    f"torch {torch.__version__} computes attention wrongly on {device.type}: use "
                    "another release of torch, or the CPU (--device cpu)"
                )


def activation_budget(device: torch.device) -> int:
    """Bytes for activations: half of what is free on a GPU, where weights and images go as well."""
    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else BUDGET


def use_one_thread(device: torch.device) -> None:
    """Let a process use one thread of a CPU, unless OMP_NUM_THREADS says otherwise.

    The operations of a small model take less time than it takes to synchronise threads. A command
    calls this for itself; building a model leaves the caller's threads alone.
    """
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def suit_convolutions(visual: nn.Module, device: torch.device) -> None:
    """Lay an image tower out as the convolutions of a GPU want it, and let them be chosen by trial.

    Images have one size, so that the trial pays; a ViT has only one convolution, whose rounding is
    better the same in every run.
    """
    if device.type != "cuda":
        return
    visual.to(memory_format=torch.channels_last)
    if sum(isinstance(module, nn.Conv2d) for module in visual.modules()) > 1:
        torch.backends.cudnn.benchmark = True


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device; a GPU's host goes on at once, since it copies from pinned memory."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
    return pinned.to(device, non_blocking=True)
