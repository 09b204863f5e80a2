"""Reading upstream's checkpoints without running the code that their pickles name.

Upstream stores the scheduler behind a warm-up as a live object, with its optimizer. Inert stand-ins
take the place of those classes, so the safe loader accepts the file and nothing is executed.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from typing import Any

import torch

_CLASSES = (
    *("torch.optim.lr_scheduler." + name for name in ("CosineAnnealingLR", "StepLR")),
    "torch.optim.lr_scheduler.MultiStepLR",
    "torch.optim.adam.Adam",
    "torch.optim.adamw.AdamW",
    "torch.optim.radam.RAdam",
    "torch.optim.rmsprop.RMSprop",
    "torch.optim.sgd.SGD",
    "dassl.optim.radam.RAdam",
)


def _stub(path: str) -> type:
    module, name = path.rsplit(".", 1)
    return type(name, (), {"__module__": module})


def _plain_dict(*_: Any) -> OrderedDict[Any, Any]:
    return OrderedDict()


# The safe loader fills only dict and OrderedDict, so a defaultdict is read as the latter.
_plain_dict.__module__ = "collections"
_plain_dict.__name__ = _plain_dict.__qualname__ = "defaultdict"  # torch 2.5 looks at the first

_STUBS: list[Any] = [*map(_stub, _CLASSES), _plain_dict, dict]


def legacy_globals() -> AbstractContextManager[Any]:
    """A context in which ``torch.load(weights_only=True)`` reads upstream's checkpoints."""
    return torch.serialization.safe_globals(_STUBS)
