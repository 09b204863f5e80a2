"""The logits of the terms, where cross-entropy sees others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

from coop_cmp.errors import UserError

_other_logits: ContextVar[Tensor | None] = ContextVar("penalty_logits", default=None)


@contextmanager
def penalty_logits(logits: Tensor) -> Iterator[None]:
    """Name the logits of the terms that a surrounding scope adds, where cross-entropy sees others.

    For methods whose training loss is not the cross-entropy of the logits that predict (ProDA
    trains on an upper bound). Outside a scope it does nothing.

    Args:
        logits: Of the same shape as the first argument of cross-entropy.
    """
    token = _other_logits.set(logits)
    try:
        yield
    finally:
        _other_logits.reset(token)


def named_logits(input: Tensor) -> Tensor:
    """The logits that somebody named, or else those of the cross-entropy."""
    other = _other_logits.get()
    if other is None:
        return input
    if other.shape != input.shape:
        raise UserError(
            f"penalty_logits: expected logits of shape {tuple(input.shape)}, as cross_entropy got, "
            f"got {tuple(other.shape)}"
        )
    return other
