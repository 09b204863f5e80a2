"""Whether stored features can be believed: what the tensor is, and whose the folder."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch
from torch import Tensor


def strange(tensor: Tensor, shape: tuple[int, int | None] | None) -> str:
    """What tells a tensor from image features of this shape; empty if nothing does."""
    if tensor.dtype != torch.float32:
        return f"it holds {tensor.dtype}, not single precision"
    if shape is not None and not _fits(tensor, *shape):
        return f"it holds {list(tensor.shape)}, not {list(shape)} numbers"
    if not tensor.isfinite().all():
        return "it holds numbers that are not finite"
    if shape is not None and not tensor.any(dim=-1).all():
        return "it holds features that are zero"
    return ""


def _fits(tensor: Tensor, rows: int, columns: int | None) -> bool:
    """Whether a tensor [..., columns] holds that many rows, whatever the dimensions before."""
    *before, last = tensor.shape or (0,)
    return bool(before) and math.prod(before) == rows and columns in (None, last)


def foreign(folder: Path) -> str:
    """Why a folder is not the user's own, in which nobody else can write; empty if it is."""
    try:
        status = folder.stat()
    except OSError:
        return ""
    if os.name != "posix":
        return ""
    if status.st_uid != os.getuid():
        return "it belongs to another user; name a folder of your own (MODEL.FEATURE_STORE)"
    if status.st_mode & 0o022:
        return f"others can write to it; close it with: chmod 700 {folder}"
    return ""


def own_folder(folder: Path) -> None:
    """Make a folder that only the user can enter, unless it is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
