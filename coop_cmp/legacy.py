"""Reading upstream Dassl's checkpoints without running the code that their pickles name.

Upstream stores the scheduler behind a warm-up as a live object, with its optimizer. Inert stand-ins
take the place of those classes, so the safe loader accepts the file and nothing is executed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

_CLASSES = {
    "torch.optim.lr_scheduler": ("CosineAnnealingLR", "MultiStepLR", "StepLR"),
    "torch.optim.adam": ("Adam",),
    "torch.optim.adamw": ("AdamW",),
    "torch.optim.radam": ("RAdam",),
    "torch.optim.rmsprop": ("RMSprop",),
    "torch.optim.sgd": ("SGD",),
    "dassl.optim.radam": ("RAdam",),
}


def defaultdict(*_: Any) -> OrderedDict[Any, Any]:
    """Stand in for ``collections.defaultdict``: the safe loader fills only dict and OrderedDict."""
    return OrderedDict()


defaultdict.__module__ = "collections"

# What to give to torch.serialization.safe_globals or add_safe_globals.
STAND_INS: list[Any] = [
    *(type(name, (), {"__module__": home}) for home, names in _CLASSES.items() for name in names),
    defaultdict,
    dict,
]
