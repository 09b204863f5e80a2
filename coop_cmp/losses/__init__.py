"""Training-time terms, one file each: functions of logits [N, C] and labels [N].

Some take the zero-shot logits [N, C] of the same images, or text features. Settings are described
in :mod:`coop_cmp.losses.names`, as ``coop-cmp settings`` shows them.

``<name>_loss`` in the module ``<name>``, in lower case, is the function of the term.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from coop_cmp.losses.names import TERMS

__all__ = [f"{name.lower()}_loss" for name in TERMS]


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in __all__:  # the functions need torch: import them on demand
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{name.removesuffix('_loss')}"), name)


def function_of(term: str) -> Callable[..., Any]:
    """The function of a term, by the term's name."""
    return __getattr__(f"{term.lower()}_loss")
