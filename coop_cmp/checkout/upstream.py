"""Repairs that upstream Dassl 0.6.3 and checkouts need on current torch, made at run time.

Its warm-up schedulers hand torch an argument that torch no longer takes, and its checkpoints hold a
live scheduler with its optimizer, which the safe loader of torch refuses to read.
"""

from __future__ import annotations

import codecs
import inspect
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler

# The classes whose objects upstream pickles behind a warm-up scheduler.
_PICKLED = {
    "torch.optim.lr_scheduler": ("CosineAnnealingLR", "MultiStepLR", "StepLR"),
    "torch.optim.adam": ("Adam",),
    "torch.optim.adamw": ("AdamW",),
    "torch.optim.rmsprop": ("RMSprop",),
    "torch.optim.sgd": ("SGD",),
    "dassl.optim.radam": ("RAdam",),
}


def mend() -> list[str]:
    """Repair what is broken in the installed Dassl, if anything; the names of the repairs."""
    from dassl.optim import lr_scheduler

    warmup: Any = getattr(lr_scheduler, "_BaseWarmupScheduler", None)
    if warmup is None:  # not upstream
        return []
    mended = []
    if "verbose" not in inspect.signature(LRScheduler.__init__).parameters:
        warmup.__init__ = _init_warmup
        mended.append("warm-up schedulers")
    if hasattr(torch.serialization, "add_safe_globals"):
        _read_pickled_schedulers_safely()
        warmup.load_state_dict = _load_warmup
        mended.append("checkpoint loading")
    return mended


def read_arrays_safely() -> None:
    """Let ``torch.load`` read the numpy arrays that checkouts keep in files of their own."""
    if hasattr(torch.serialization, "add_safe_globals"):
        core: Any = getattr(np, "_core", None) or np.core
        kinds = {type(np.dtype(kind)) for kind in "?bhilefd"}
        allowed = [core.multiarray._reconstruct, np.ndarray, np.dtype, codecs.encode, *kinds]
        torch.serialization.add_safe_globals(allowed)


def _init_warmup(
    self: Any,
    optimizer: torch.optim.Optimizer,
    successor: LRScheduler,
    warmup_epoch: int,
    last_epoch: int = -1,
    verbose: bool = False,
) -> None:
    self.successor, self.warmup_epoch = successor, warmup_epoch
    LRScheduler.__init__(self, optimizer, last_epoch)


def _load_warmup(self: Any, state: dict[str, Any]) -> None:
    """Restore the scheduler behind the warm-up in place, so that it keeps the live optimizer."""
    state = dict(state)
    successor = vars(state.pop("successor"))
    self.successor.load_state_dict({k: v for k, v in successor.items() if k != "optimizer"})
    self.__dict__.update(state)


def _read_pickled_schedulers_safely() -> None:
    """Let ``torch.load`` read those objects as empty shells, without running what they name."""
    shells: list[Any] = [
        type(name, (), {"__module__": module})
        for module, names in _PICKLED.items()
        for name in names
    ]

    def defaultdict(*_: Any) -> OrderedDict[Any, Any]:
        return OrderedDict()  # the safe loader fills only dict and OrderedDict

    defaultdict.__module__, defaultdict.__qualname__ = "collections", "defaultdict"
    torch.serialization.add_safe_globals([*shells, defaultdict, dict])
