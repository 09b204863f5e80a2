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
    "init_network_weights",
    "load_checkpoint",
    "load_pretrained_weights",
    "open_all_layers",
    "open_specified_layers",
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


def open_all_layers(model: nn.Module) -> None:
    """Train every layer."""
    model.train()
    for parameter in model.parameters():
        parameter.requires_grad = True


def open_specified_layers(model: nn.Module, open_layers: str | list[str]) -> None:
    """Train the named children only; the others are frozen and in eval mode."""
    model = model.module if isinstance(model, nn.DataParallel) else model
    names = [open_layers] if isinstance(open_layers, str) else list(open_layers)
    children = dict(model.named_children())
    missing = [name for name in names if name not in children]
    if missing:
        raise ValueError(f"no such layers: {missing}; the model has {list(children)}")
    for name, module in children.items():
        module.train(name in names)
        for parameter in module.parameters():
            parameter.requires_grad = name in names


def init_network_weights(model: nn.Module, init_type: str = "normal", gain: float = 0.02) -> None:
    """Initialise convolutions, linear and norm layers.

    Args:
        model: Module to initialise, in place.
        init_type: ``normal``, ``xavier``, ``kaiming`` or ``orthogonal``.
        gain: Standard deviation (normal) or gain (xavier, orthogonal).
    """
    weight_init = {
        "normal": lambda weight: nn.init.normal_(weight, 0.0, gain),
        "xavier": lambda weight: nn.init.xavier_normal_(weight, gain=gain),
        "kaiming": lambda weight: nn.init.kaiming_normal_(weight, a=0, mode="fan_in"),
        "orthogonal": lambda weight: nn.init.orthogonal_(weight, gain=gain),
    }
    if init_type not in weight_init:
        raise NotImplementedError(
            f"init_type: expected one of {list(weight_init)}, got {init_type!r}"
        )
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if weight is None:
            continue
        if isinstance(module, nn.modules.batchnorm._NormBase):
            nn.init.constant_(weight, 1.0)
        elif isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
            weight_init[init_type](weight)
        else:
            continue
        if getattr(module, "bias", None) is not None:
            nn.init.constant_(module.bias, 0.0)  # type: ignore[arg-type]
