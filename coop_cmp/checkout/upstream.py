"""Repair upstream Dassl 0.6.3 for current torch, at run time.

Its warm-up schedulers hand torch an argument that torch no longer takes, and its checkpoints hold a
live scheduler with its optimizer, which the safe loader of torch refuses to read.
"""

from __future__ import annotations

import builtins
import codecs
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler

from coop_cmp.legacy import STAND_INS


def repair() -> None:
    """Repair what is broken in the installed Dassl, and say so."""
    import dassl
    from dassl.optim import lr_scheduler

    _read_arrays_safely()
    for name in ("bool", "float", "int"):  # which numpy no longer has; upstream's RandAugment does
        if name not in vars(np):
            setattr(np, name, getattr(builtins, name))
    warmup: Any = getattr(lr_scheduler, "_BaseWarmupScheduler", None)
    if warmup is None:  # not upstream
        return
    torch.serialization.add_safe_globals(STAND_INS)
    warmup.__init__, warmup.load_state_dict = _init_warmup, _load_warmup
    version = getattr(dassl, "__version__", "(unknown version)")
    print(
        f"coop_cmp: patched Dassl {version} for torch {torch.__version__}: warm-up schedulers, "
        "checkpoint loading"
    )


def _read_arrays_safely() -> None:
    """Let ``torch.load`` read the numpy arrays that checkouts keep in files of their own."""
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
