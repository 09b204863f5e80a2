"""Seeing every cross-entropy that Python code computes, by whatever name it is called.

``cross_entropy`` and ``nll_loss``, their modules, and names or objects that hold these functions
all end in one of two C functions, which torch looks up at every call. While somebody looks, these
two are replaced. (A TorchFunctionMode would see them too, but while any such mode is active PyTorch
takes another kernel for frozen attention layers, and results would not be bit-identical.)

The names in ``torch.nn.functional``, and in modules that have imported them, are replaced as well,
by functions that torch.compile does not trace: a graph would hold the loss of the time it was
compiled in. So a compiled function breaks its graph there and is right. One that takes the function
from elsewhere, such as an object, is refused when it is compiled, and not seen if it was before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
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
Loss = Callable[..., Tensor]
_C: Any = torch._C._nn
_replaced: list[tuple[Any, str, Any]] = []  # what to put back where


def install(handler: Handler) -> None:
    """Let the handler see every cross-entropy and decide what it returns."""
    for module, held in _holders(F.cross_entropy, F.nll_loss, len(sys.modules)):
        _replace(module, held, _untraced(getattr(module, held)))
    for name, function in (("cross_entropy", "cross_entropy_loss"), ("nll_loss", "nll_loss_nd")):
        _replace(_C, function, _seen(handler, getattr(_C, function), name))


def remove() -> None:
    """Put everything back as it was."""
    while _replaced:
        setattr(*_replaced.pop())


def _replace(owner: Any, name: str, value: Any) -> None:
    _replaced.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


@lru_cache
def _holders(one: Loss, other: Loss, number: int) -> list[tuple[Any, str]]:
    """Where modules hold one of two functions, and by what name; torch itself holds each once.

    Args:
        number: How many modules there are, as more may come.
    """
    found: list[tuple[Any, str]] = [(F, one.__name__), (F, other.__name__)]
    if "torch._dynamo" in sys.modules:  # else nothing is compiled, and the C functions suffice
        for key, module in list(sys.modules.items()):
            if key.partition(".")[0] != "torch":
                names = list(getattr(module, "__dict__", {}).items())
                found += [(module, name) for name, v in names if v is one or v is other]
    return found


def _untraced(function: Loss) -> Loss:
    def call(*args: Any, **kwargs: Any) -> Tensor:
        loaded = "torch._dynamo" in sys.modules  # importing it takes seconds
        return (_disabled(function) if loaded else function)(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call


@lru_cache
def _disabled(function: Loss) -> Loss:
    return sys.modules["torch._dynamo"].disable(function)


def _seen(handler: Handler, function: Loss, name: str) -> Loss:
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


def in_backward() -> bool:
    """Whether a backward pass is running, which may compute a cross-entropy again."""
    return torch._C._current_graph_task_id() != -1


def is_running(function: Callable[..., Any]) -> bool:
    """Whether the function is among the callers."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None
