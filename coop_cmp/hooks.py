"""Seeing every cross-entropy that Python code computes, by whatever name it is called.

``cross_entropy`` and ``nll_loss``, their modules, and names or objects that hold these functions
all end in one of two C functions, which torch looks up at every call. While somebody looks, these
two are replaced. (A TorchFunctionMode would see them too, but while any such mode is active PyTorch
takes another kernel for frozen attention layers, and results would not be bit-identical.)

The names in ``torch.nn.functional`` are replaced as well, by functions that torch.compile does not
trace: a graph would hold the loss of the time it was compiled in. So a compiled function breaks its
graph there and is right; one that holds cross-entropy under a name of its own is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

NONE, MEAN, SUM = range(3)  # the reductions of torch's C functions


@dataclass(frozen=True)
class Call:
    """A cross-entropy and its arguments.

    Attributes:
        loss: What it returned.
        input: Logits [N, C], [C] or [N, C, d1, ...]; of ``nll_loss``: log-probabilities.
        target: Class indices [N], [] or [N, d1, ...], or probabilities.
        function: ``cross_entropy`` or ``nll_loss``.
        again: The same for another input.
    """

    loss: Tensor
    input: Tensor
    target: Tensor
    weight: Tensor | None
    reduction: int
    ignore_index: int
    label_smoothing: float
    function: str
    again: Callable[[Tensor], Tensor]

    def rows(self, logits: Tensor) -> Tensor:
        """Logits of the input's shape as [N * d1 * ..., C]."""
        logits = logits.unsqueeze(0) if logits.dim() == 1 else logits
        return logits.movedim(1, -1).flatten(0, -2)


Handler = Callable[[Call], Tensor]
_C: Any = torch._C._nn
_plain: dict[str, Any] = {}


def install(handler: Handler) -> None:
    """Let the handler see every cross-entropy and decide what it returns."""
    names = ("cross_entropy", "nll_loss")
    _plain.update({name: getattr(F, name) for name in names})
    _plain.update({"C": (_C.cross_entropy_loss, _C.nll_loss_nd)})
    for name in names:
        setattr(F, name, _untraced(_plain[name]))
    _C.cross_entropy_loss, _C.nll_loss_nd = (
        _seen(handler, function, name) for function, name in zip(_plain["C"], names, strict=True)
    )


def remove() -> None:
    """Put everything back as it was."""
    _C.cross_entropy_loss, _C.nll_loss_nd = _plain.pop("C")
    for name in tuple(_plain):
        setattr(F, name, _plain.pop(name))


def _untraced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(*args: Any, **kwargs: Any) -> Tensor:
        dynamo = sys.modules.get("torch._dynamo")  # importing it takes seconds
        return (dynamo.disable(function) if dynamo else function)(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call


def _seen(handler: Handler, function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    def call(
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        reduction: int = MEAN,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> Tensor:
        smoothing = (label_smoothing,) if name == "cross_entropy" else ()

        def again(input: Tensor) -> Tensor:
            return function(input, target, weight, reduction, ignore_index, *smoothing)

        options = (weight, reduction, ignore_index, label_smoothing)
        return handler(Call(again(input), input, target, *options, name, again))

    return call
