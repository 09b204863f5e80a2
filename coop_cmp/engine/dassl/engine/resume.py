"""Where an interrupted run goes on."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from dassl.utils import load_checkpoint
from dassl.utils.checkpoint import BEST_NAME

from coop_cmp.files import atomic_write


def get_rng_state() -> dict[str, Any]:
    """The states of python's, numpy's and torch's generators (all devices)."""
    numpy_state: Any = np.random.get_state()
    name, keys, position, has_gauss, cached = numpy_state
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Put back what :func:`get_rng_state` gave; devices that are not there are left out."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def training_state(trainer: Any) -> dict[str, Any]:
    """What a run needs, beside its models, to go on exactly as if it had not stopped."""
    best_result = getattr(trainer, "best_result", None)
    scaler = getattr(trainer, "scaler", None)
    own_state = getattr(trainer, "own_state", dict)  # what a trainer of this project measures
    return {
        "rng": get_rng_state(),
        "scaler": scaler.state_dict() if scaler is not None else None,
        "best_result": None if best_result is None else float(best_result),
        "run": getattr(trainer, "run", None),
        "own": own_state(),
    }


def restore_training_state(trainer: Any, checkpoint: dict[str, Any]) -> None:
    """Put :func:`training_state` back; upstream's checkpoints have only the best result."""
    best_result = checkpoint.get("best_result", checkpoint.get("val_result"))
    if best_result is not None:
        trainer.best_result = best_result
    scaler = getattr(trainer, "scaler", None)
    if scaler is not None and checkpoint.get("scaler"):
        scaler.load_state_dict(checkpoint["scaler"])
    if checkpoint.get("own"):
        trainer.restore_own_state(checkpoint["own"])
    if checkpoint.get("rng"):
        set_rng_state(checkpoint["rng"])


def newest_common_checkpoints(
    directory: str, names: Sequence[str]
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Find the newest epoch of which every model has a whole checkpoint.

    Returns:
        For each model its file and what is in it; empty if there is no such epoch.
    """
    files = {name: _files_by_epoch(os.path.join(directory, name)) for name in names}
    common = set.intersection(*(set(epochs) for epochs in files.values())) if files else set()
    for epoch in sorted(common, reverse=True):
        found = {name: _load(files[name][epoch]) for name in names}
        if all(checkpoint is not None for checkpoint in found.values()):
            return {name: (files[name][epoch], found[name]) for name in names}  # type: ignore[misc]
    return {}


def carry_best(source: str, target: str, names: Sequence[str]) -> None:
    """Copy the best checkpoints so far to the directory in which the run goes on."""
    for name in names:
        best = os.path.join(source, name, BEST_NAME)
        copy = os.path.join(target, name, BEST_NAME)
        if os.path.isfile(best) and os.path.abspath(best) != os.path.abspath(copy):
            with open(best, "rb") as original, atomic_write(copy) as file:
                shutil.copyfileobj(original, file)


def _files_by_epoch(directory: str) -> dict[int, str]:
    if not os.path.isdir(directory):
        return {}
    files = {}
    for file_name in os.listdir(directory):
        if match := re.fullmatch(r"model\.pth\.tar-(\d+)", file_name):
            files[int(match[1])] = os.path.join(directory, file_name)
    # These names do not tell the epoch.
    for file_name in {BEST_NAME, _noted_name(directory)}:
        fpath = os.path.join(directory, file_name)
        if fpath not in files.values() and os.path.isfile(fpath):
            checkpoint = _load(fpath)
            if checkpoint is not None:
                files.setdefault(int(checkpoint["epoch"]), fpath)
    return files


def _noted_name(directory: str) -> str:
    """The file that ``checkpoint`` names: one saved under a name of the trainer's own choice."""
    note = os.path.join(directory, "checkpoint")
    if not os.path.isfile(note):
        return BEST_NAME
    with open(note, encoding="utf-8", errors="replace") as file:
        return os.path.basename(file.readline().strip()) or BEST_NAME


def _load(fpath: str) -> dict[str, Any] | None:
    """The checkpoint, or None (and a line that says why) if the file is not a whole one."""
    try:
        checkpoint = load_checkpoint(fpath)
    except OSError as error:
        print(f"Skipping: {error}")
        return None
    if not isinstance(checkpoint, dict) or not {"state_dict", "epoch"} <= set(checkpoint):
        print(f'Skipping: "{fpath}" is not the checkpoint of a run')
        return None
    return checkpoint
