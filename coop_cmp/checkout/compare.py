"""Compare two tensors as functions of what learns: their values and their gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def one_source(prompts: Tensor, count: int) -> int:
    """Count the first tokens that are the same function of what learns, for every class.

    Contexts of single classes may start with equal values, but a change of one does not move the
    others. So the gradients of a random mixture of the classes' tokens are compared with those of
    the first class's.

    Args:
        prompts: [C, L, d] with a graph.
        count: Tokens with equal values.
    """
    generator = torch.Generator().manual_seed(0)  # the run's own random numbers stay untouched
    classes, _, width = prompts.shape
    weights = torch.rand(classes, 1, generator=generator).to(prompts)
    direction = torch.randn(count, width, generator=generator).to(prompts)
    learned = leaves(prompts)

    def same(i: int) -> bool:
        mixture = (prompts[:, i] * weights * direction[i]).sum()
        first = (prompts[0, i] * weights.sum() * direction[i]).sum()
        return distance(_gradients(mixture, learned), _gradients(first, learned)) < 0.01

    return next((i for i in range(count) if not same(i)), count)


def differences(fast: Tensor, own: Tensor) -> tuple[float, float]:
    """Compute the largest differences of features, and of gradients of everything that learns."""
    features, learned = distance([fast], [own]), [*{*leaves(own), *leaves(fast)}]
    if not learned:
        return features, 0.0
    direction = torch.randn(own.shape, generator=torch.Generator().manual_seed(0)).to(own)
    pairs = zip(
        _gradients((fast * direction).sum(), learned),
        _gradients((own * direction).sum(), learned),
        strict=True,
    )
    return features, max((distance([a], [b]) for a, b in pairs), default=0.0)


def leaves(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that would get a gradient from this one."""
    return [node.variable for node in _graph(tensor) if hasattr(node, "variable")]


def coarsest(tensor: Tensor) -> float:
    """Return the coarsest rounding step on the way of the gradients: checkouts use ``.half()``."""
    kinds = {tensor.dtype}
    for node in _graph(tensor):
        kinds |= {gradient.dtype for gradient in getattr(node, "_input_metadata", ())}
    return max(torch.finfo(kind).eps for kind in kinds if kind.is_floating_point)


def _graph(tensor: Tensor) -> list[Any]:
    """Return all nodes of the graph behind a tensor, each once."""
    seen: dict[Any, None] = {}
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen[node] = None
            waiting += [function for function, _ in node.next_functions]
    return list(seen)


def _gradients(value: Tensor, learned: list[Tensor]) -> list[Tensor]:
    grads = torch.autograd.grad(value, learned, retain_graph=True, allow_unused=True)
    pairs = zip(grads, learned, strict=True)
    return [torch.zeros_like(leaf) if grad is None else grad for grad, leaf in pairs]


def distance(these: list[Tensor], those: list[Tensor]) -> float:
    """Return the largest difference as a share of the largest entry of those."""
    pairs = [(a.detach().float(), b.detach().float()) for a, b in zip(these, those, strict=True)]
    largest = max((float(b.abs().max()) for _, b in pairs), default=0.0)
    difference = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
    return difference / largest if largest else difference
