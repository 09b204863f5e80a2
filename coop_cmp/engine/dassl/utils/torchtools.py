"""Small tools for modules and their parameters; checkpoints under the name checkouts import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from .checkpoint import (
    load_checkpoint,
    load_pretrained_weights,
    resume_from_checkpoint,
    save_checkpoint,
)

__all__ = [
    "count_num_param",
    "load_checkpoint",
    "load_pretrained_weights",
    "resume_from_checkpoint",
    "save_checkpoint",
]


def count_num_param(
    model: nn.Module | None = None, params: nn.Module | Iterable[Any] | None = None
) -> int:
    """Number of parameters of ``model``, or of ``params`` (a module or parameters)."""
    if model is None and params is None:
        raise ValueError("model and params must provide at least one.")
    source = model if model is not None else params
    parameters: Any = source.parameters() if isinstance(source, nn.Module) else source
    return sum(parameter.numel() for parameter in parameters)
