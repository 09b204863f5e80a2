"""The prompts of many classes as one packed sequence without repeated or idle tokens."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from coop_cmp.clip.prompts import PromptLayout
from coop_cmp.devices import to_device

BLOCK = 48  # own tokens, of several classes, that attend in one product (or up to twice as many)
EMPTY = 0.02  # share of empty places that is good enough
ROWS = 1.5  # places of rows per token, at most
ALIGNED = 16  # columns: on a GPU, rows of a mask that begin elsewhere are copied in every layer


@dataclass(frozen=True)
class Packing:
    """Some classes' tokens: the shared prefix (P tokens), then their own in B blocks of K.

    All tokens of a class stand in one block, so that attention is one product for all blocks,
    whatever the lengths of names. Classes are spread so evenly that hardly a place stays empty. A
    single block is whole: the prefix attends in the same product.
    Classes with a context of their own share next to nothing and are long: in a block with others
    most of that attention would be masked. They stand in one block without empty places, and are
    gathered in rows, one for each, to attend; unless one is far longer than the others.

    Args:
        prefix: P.
        blocks: B.
        tokens: Token ids [P + B * K]; any id where a learned vector goes.
        positions: Their places in the unpacked sequence [P + B * K].
        learned: Packed places of learned vectors [L].
        source: The context rows that go there [L], in a context [M, d], or [C * M, d] if the
            layout is class-specific.
        ends: Places of the end tokens [C] after the prefix.
        mask: [B, 1, K, P + K]: 0 where an own token looks at the prefix, itself and those of its
            class before it, and -inf elsewhere. A few columns after them mean nothing. If the
            packing is whole, rows of the prefix come first: [1, 1, P + K, P + K].
        rows: Instead of the mask, for classes with a context of their own: the packed places
            [C, S] of the tokens of each, prefix included; any place where none is left.
        places: Where the packed tokens [P + K] stand in these rows [C * S].
    """

    prefix: int
    blocks: int
    tokens: Tensor
    positions: Tensor
    learned: Tensor
    source: Tensor
    ends: Tensor
    mask: Tensor
    rows: Tensor
    places: Tensor

    @property
    def whole(self) -> bool:
        """Whether the mask has rows for the prefix too."""
        return self.mask.shape[-2:-1] == self.tokens.shape


@lru_cache(maxsize=64)  # a run has a handful of layouts and encodes them in every step
@torch.inference_mode(False)  # what is kept must also serve a later pass with gradients
def pack(layout: PromptLayout, limit: int, device: torch.device) -> tuple[Packing, ...]:
    """Cut the classes, in their order, into packings of about ``limit`` tokens at most.

    A packing has at least one class, and the few empty places of its blocks come on top.
    """
    shared = len(layout.prefix)
    pieces: list[list[int]] = [[]]
    size = shared
    for c, slots in enumerate(layout.slots):
        own = len(slots) - shared
        if pieces[-1] and size + own > limit:
            pieces.append([])
            size = shared
        pieces[-1].append(c)
        size += own
    return tuple(_packing(layout, piece, device) for piece in pieces)


def _packing(layout: PromptLayout, classes: Sequence[int], device: torch.device) -> Packing:
    shared = len(layout.prefix)
    own = {c: layout.slots[c][shared:] for c in classes}
    lengths = {c: len(slots) for c, slots in own.items()}
    longest, total = max(lengths.values()), sum(lengths.values())
    in_rows = layout.class_specific and len(classes) * longest <= ROWS * total
    blocks = [list(classes)] if in_rows else into_blocks(lengths)
    width = max(sum(lengths[c] for c in block) for block in blocks)
    slots, positions = list(layout.prefix), list(range(shared))
    owners, ends = [-1] * shared, dict.fromkeys(classes, 0)
    for b, block in enumerate(blocks):
        for c in block:
            slots += own[c]
            positions += range(shared, shared + lengths[c])
            owners += [c] * lengths[c]
            ends[c] = len(slots) - shared - 1
        empty = shared + (b + 1) * width - len(slots)
        slots, positions = slots + [0] * empty, positions + [0] * empty
        owners += [-1] * empty
    learned = [place for place, slot in enumerate(slots) if slot < 0]
    own_rows = layout.n_context if layout.class_specific else 0
    mask = rows = places = torch.empty(0)
    if in_rows:
        rows, places = _rows(torch.tensor(list(lengths.values())), shared)
    else:
        mask = _mask(torch.tensor(owners[shared:]).unflatten(0, (len(blocks), width)), shared)
    tensors = {
        "tokens": torch.tensor([max(slot, 0) for slot in slots]),
        "positions": torch.tensor(positions),
        "learned": torch.tensor(learned, dtype=torch.long),
        "source": torch.tensor(
            [-1 - slots[i] + own_rows * owners[i] for i in learned], dtype=torch.long
        ),
        "ends": torch.tensor(list(ends.values())),
        "mask": mask,
        "rows": rows,
        "places": places,
    }
    there = {name: to_device(tensor, device) for name, tensor in tensors.items()}
    return Packing(prefix=shared, blocks=len(blocks), **there)


def into_blocks(lengths: Mapping[int, int]) -> list[list[int]]:
    """Classes of some lengths in blocks of about BLOCK tokens, with hardly an empty place.

    Of the numbers of blocks around the wanted one, the nearest that leaves few places empty.
    """
    total = sum(lengths.values())
    most = max(1, total // BLOCK)
    wanted = range(most, max(0, most // 2 - 1), -1)
    best: tuple[int, list[list[int]]] | None = None
    for count in wanted:
        blocks, width = _spread(lengths, count)
        if best is None or count * width < best[0]:
            best = count * width, blocks
        if count * width <= (1 + EMPTY) * total:
            break
    assert best is not None
    return best[1]


def _spread(lengths: Mapping[int, int], count: int) -> tuple[list[list[int]], int]:
    """Classes in equally full blocks, and the tokens of the fullest.

    The longest class comes first, and each goes into the block with the fewest tokens so far.
    """
    blocks: list[list[int]] = [[] for _ in range(count)]
    heap = [(0, b) for b in range(count)]
    for c in sorted(lengths, key=lambda c: -lengths[c]):
        tokens, b = heap[0]
        blocks[b].append(c)
        heapq.heapreplace(heap, (tokens + lengths[c], b))
    return blocks, max(heap)[0]


def _mask(owner: Tensor, shared: int) -> Tensor:
    """The mask of own tokens whose classes are given [B, K]; an empty place sees no other."""
    blocks, width = owner.shape
    same = (owner[:, :, None] == owner[:, None]) & (owner >= 0)[:, None]
    seen = (same | torch.eye(width, dtype=torch.bool)).tril()
    mask = torch.zeros(blocks, 1, width, -(-(shared + width) // ALIGNED) * ALIGNED)
    mask[:, 0, :, shared : shared + width].masked_fill_(~seen, float("-inf"))
    if blocks > 1:
        return mask
    prefix = torch.full((1, 1, shared, mask.shape[-1]), float("-inf")).triu(1)
    return torch.cat([prefix, mask], dim=2)


def _rows(lengths: Tensor, shared: int) -> tuple[Tensor, Tensor]:
    """Rows [C, S] and places [P + K] for classes of these lengths [C], one after the other."""
    column = torch.arange(shared + int(lengths.max()))
    before = (lengths.cumsum(0) - lengths)[:, None]  # own tokens of other classes
    own = (column >= shared) & (column < shared + lengths[:, None])
    rows = torch.where(own, column + before, column * (column < shared))
    return rows, torch.cat([column[:shared], own.flatten().nonzero()[:, 0]])
