"""Checkpoints: written whole or not at all, read without running any code in them."""

from __future__ import annotations

import os
import shutil
import textwrap
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from coop_cmp.files import atomic_write, check_stored
from coop_cmp.legacy import STAND_INS

BEST_NAME = "model-best.pth.tar"


def save_checkpoint(
    state: dict[str, Any],
    save_dir: str,
    is_best: bool = False,
    remove_module_from_keys: bool = True,
    model_name: str = "",
) -> None:
    """Write ``state`` to ``save_dir`` and note its file name in ``save_dir/checkpoint``.

    Args:
        state: At least ``state_dict`` and ``epoch``.
        save_dir: Directory, made if need be.
        is_best: Also copy the file to ``model-best.pth.tar``.
        remove_module_from_keys: Strip the prefix that DataParallel puts before each name.
        model_name: File name; ``model.pth.tar-<epoch>`` if empty.
    """
    if remove_module_from_keys:
        state = {**state, "state_dict": strip_module(state["state_dict"])}
    name = model_name or f"model.pth.tar-{state['epoch']}"
    path = os.path.join(save_dir, name)
    try:
        with atomic_write(path) as file:
            torch.save(state, file)
        with atomic_write(os.path.join(save_dir, "checkpoint")) as file:
            file.write(f"{name}\n".encode())
        print(f"Checkpoint saved to {path}")
        if is_best:
            best = os.path.join(save_dir, BEST_NAME)
            with open(path, "rb") as source, atomic_write(best) as file:
                shutil.copyfileobj(source, file)
            print(f'Best checkpoint saved to "{best}"')
    except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
        reason = getattr(error, "strerror", None) or error
        raise OSError(
            f'cannot write the checkpoint "{path}": {reason}; free some space or '
            "choose another --output-dir"
        ) from error


def strip_module(state_dict: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Remove the leading ``module.`` of DataParallel from every name."""
    return OrderedDict((key.removeprefix("module."), value) for key, value in state_dict.items())


def load_checkpoint(fpath: str) -> Any:
    """Read a checkpoint to the CPU; files of upstream Dassl too.

    Raises:
        ValueError: ``fpath`` is None.
        FileNotFoundError: there is no such file.
        OSError: the file is torn, or not a checkpoint.
    """
    if fpath is None:
        raise ValueError("File path is None")
    if not os.path.isfile(fpath):
        raise FileNotFoundError(f'File is not found at "{fpath}"')
    try:
        check_stored(fpath)
        with torch.serialization.safe_globals(STAND_INS):
            return torch.load(fpath, map_location="cpu", weights_only=True)
    # A torn file shows as RuntimeError, EOFError, UnpicklingError, KeyError... by where it is cut.
    except Exception as error:
        raise OSError(
            f'cannot load the checkpoint "{fpath}": it is incomplete, or not a checkpoint of plain '
            f"data ({type(error).__name__}); delete the file, or give another one"
        ) from error


@contextmanager
def fitting(fpath: str) -> Iterator[None]:
    """Turn the errors of a checkpoint that is of another model into one that says so."""
    try:
        yield
    except (RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = textwrap.shorten(str(error), 300)  # torch's own text has many lines
        raise OSError(
            f'the checkpoint "{fpath}" does not fit this model ({reason}); delete it, or choose '
            "another directory"
        ) from error


def restore(
    checkpoint: Any,
    fpath: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    scheduler: Any = None,
) -> int:
    """Put a loaded checkpoint into a model, its optimizer and its scheduler.

    Returns:
        The number of epochs that the checkpoint has behind it.

    Raises:
        OSError: the checkpoint is of another model.
    """
    with fitting(fpath):
        model.load_state_dict(checkpoint["state_dict"])
        print("Loaded model weights")
        if optimizer is not None and checkpoint.get("optimizer"):
            load_optimizer(optimizer, checkpoint["optimizer"])
            print("Loaded optimizer")
        if scheduler is not None and checkpoint.get("scheduler"):
            scheduler.load_state_dict(checkpoint["scheduler"])
            print("Loaded scheduler")
        epoch = int(checkpoint["epoch"])
        print(f"Previous epoch: {epoch}")
        return epoch


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load the state of an optimizer that may have run on another device.

    How it computes there is not how it computes here: its kernels, and the layout of its tensors.
    """
    groups = [
        {**saved, **{key: own[key] for key in ("fused", "foreach") if key in own}}
        for saved, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    optimizer.load_state_dict({**state, "param_groups": groups})
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if name != "step" and getattr(value, "shape", None) == parameter.shape:
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def resume_from_checkpoint(
    fdir: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    scheduler: Any = None,
) -> int:
    """Continue from the checkpoint that ``fdir/checkpoint`` names; returns its epoch."""
    with open(os.path.join(fdir, "checkpoint"), encoding="utf-8") as file:
        fpath = os.path.join(fdir, file.readline().strip())
    print(f'Loading checkpoint from "{fpath}"')
    return restore(load_checkpoint(fpath), fpath, model, optimizer, scheduler)


def load_pretrained_weights(model: nn.Module, weight_path: str) -> None:
    """Load the weights whose name and size match; the others are left as they are."""
    checkpoint = load_checkpoint(weight_path)
    own = model.state_dict()
    with fitting(weight_path):
        state_dict = strip_module(checkpoint.get("state_dict", checkpoint))
        matched = {
            name: value
            for name, value in state_dict.items()
            if name in own and own[name].size() == value.size()
        }
        model.load_state_dict({**own, **matched})
    if not matched:
        warnings.warn(f"Cannot load {weight_path} (check the key names manually)", stacklevel=2)
        return
    print(f"Successfully loaded pretrained weights from {weight_path}")
    discarded = [name for name in state_dict if name not in matched]
    if discarded:
        print(f"Layers discarded due to unmatched keys or size: {discarded}")
