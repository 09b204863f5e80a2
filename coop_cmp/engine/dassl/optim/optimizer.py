"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from dassl.utils import check_availability
from torch import nn
from yacs.config import CfgNode

from coop_cmp.config.dassl_keys import OPTIMIZERS

from .radam import RAdam


def build_optimizer(
    model: nn.Module | Iterable[Any], optim_cfg: CfgNode, param_groups: Any = None
) -> torch.optim.Optimizer:
    """Make the optimizer ``optim_cfg.NAME``.

    Args:
        model: A module, or parameters or parameter groups.
        optim_cfg: The OPTIM node.
        param_groups: Parameter groups to use instead of ``model``'s parameters.
    """
    check_availability(optim_cfg.NAME, OPTIMIZERS)
    if param_groups is not None:
        params = param_groups
    elif optim_cfg.STAGED_LR:
        params = _staged_groups(model, optim_cfg)
    else:
        params = model.parameters() if isinstance(model, nn.Module) else model
    return _make(params, optim_cfg)


def _make(params: Any, cfg: CfgNode) -> torch.optim.Optimizer:
    common: dict[str, Any] = {"lr": cfg.LR, "weight_decay": cfg.WEIGHT_DECAY}
    if cfg.NAME == "sgd":
        return torch.optim.SGD(
            params,
            momentum=cfg.MOMENTUM,
            dampening=cfg.SGD_DAMPNING,
            nesterov=cfg.SGD_NESTEROV,
            **common,
        )
    if cfg.NAME == "rmsprop":
        return torch.optim.RMSprop(params, momentum=cfg.MOMENTUM, alpha=cfg.RMSPROP_ALPHA, **common)
    common["betas"] = (cfg.ADAM_BETA1, cfg.ADAM_BETA2)
    if cfg.NAME == "radam":
        return RAdam(params, **common)
    if cfg.NAME == "adamw":
        return torch.optim.AdamW(params, **common)
    return torch.optim.Adam(params, amsgrad=cfg.NAME == "amsgrad", **common)


def _staged_groups(model: Any, cfg: CfgNode) -> list[dict[str, Any]]:
    """Two groups: the pretrained layers at a lower rate, ``cfg.NEW_LAYERS`` at the full one."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"OPTIM.STAGED_LR needs a module to build the optimizer for, got {type(model).__name__}"
        )
    if isinstance(model, nn.DataParallel):
        model = model.module
    new_layers = [cfg.NEW_LAYERS] if isinstance(cfg.NEW_LAYERS, str) else list(cfg.NEW_LAYERS)
    if not new_layers:
        print("Warning: OPTIM.NEW_LAYERS is empty, so every layer learns at the lower rate")
    groups: dict[bool, list[nn.Parameter]] = {False: [], True: []}
    for name, module in model.named_children():
        groups[name in new_layers].extend(module.parameters())
    return [
        {"params": groups[False], "lr": cfg.LR * cfg.BASE_LR_MULT},
        {"params": groups[True]},
    ]
