"""The prompts of many classes as one packed sequence without repeated or idle tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor

from coop_cmp.clip.prompts import PromptLayout


@dataclass(frozen=True)
class Packing:
    """Some classes' tokens: the shared prefix (P tokens), then each class's own (T in all).

    Args:
        prefix: P.
        buckets: (number of classes, tokens of each) of neighbours with equally many own tokens.
        tokens: Token ids [P + T]; any id where a learned vector goes.
        positions: Their places in the unpacked sequence [P + T].
        learned: Packed places of learned vectors [K].
        source: The context rows that go there [K], in a context [M, d], or [C * M, d] if the
            layout is class-specific.
        ends: Packed places of the end tokens [C].
        future: [S, S] for the longest bucket, true where a token must not look.
    """

    prefix: int
    buckets: tuple[tuple[int, int], ...]
    tokens: Tensor
    positions: Tensor
    learned: Tensor
    source: Tensor
    ends: Tensor
    future: Tensor


@lru_cache(maxsize=64)  # a run has a handful of layouts and encodes them in every step
@torch.inference_mode(False)  # what is kept must also serve a later pass with gradients
def pack(
    layout: PromptLayout, limit: int, device: torch.device
) -> tuple[tuple[Packing, ...], Tensor]:
    """Cut the classes into packings of at most ``limit`` tokens (but at least one class each).

    Returns:
        The packings, and for every class [C] its row in their joined features: classes are sorted
        by length, so that equally long ones are neighbours and no suffix needs padding.
    """
    order = sorted(range(layout.n_classes), key=lambda c: len(layout.slots[c]))
    shared = len(layout.prefix)
    pieces: list[list[int]] = [[]]
    size = shared
    for c in order:
        own = len(layout.slots[c]) - shared
        if pieces[-1] and size + own > limit:
            pieces.append([])
            size = shared
        pieces[-1].append(c)
        size += own
    rows = torch.tensor(order, device=device).argsort()
    return tuple(_packing(layout, piece, device) for piece in pieces), rows


def _packing(layout: PromptLayout, classes: Sequence[int], device: torch.device) -> Packing:
    shared = len(layout.prefix)
    own = [layout.slots[c][shared:] for c in classes]
    slots = torch.tensor([*layout.prefix, *(slot for suffix in own for slot in suffix)])
    places = [*range(shared), *(shared + i for suffix in own for i in range(len(suffix)))]
    owners = [0] * shared + [c for c, suffix in zip(classes, own, strict=True) for _ in suffix]
    learned = (slots < 0).nonzero()[:, 0]
    source = -1 - slots[learned]
    if layout.class_specific:
        source = source + torch.tensor(owners)[learned] * layout.n_context
    lengths = torch.tensor([len(suffix) for suffix in own])
    longest = len(own[-1])
    return Packing(
        prefix=shared,
        buckets=tuple((len(list(run)), length) for length, run in groupby(lengths.tolist())),
        tokens=slots.clamp(min=0).to(device),
        positions=torch.tensor(places).to(device),
        learned=learned.to(device),
        source=source.to(device),
        ends=(shared - 1 + lengths.cumsum(0)).to(device),
        future=torch.ones(longest, longest, dtype=torch.bool, device=device).triu(1),
    )
