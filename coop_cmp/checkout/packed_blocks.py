"""Other people's text blocks on packed tokens.

CoOp's descendants run CLIP's blocks, often with changes of their own, over all tokens of all
classes. While `packed` is open the same blocks see one sequence instead: the prefix that the
classes share once, then each class's own tokens up to its end token; and attention is computed
accordingly. What a block does to single tokens (norms, MLP) or to the shared prefix (deep prompts)
needs no change. From the first block on that treats classes differently, the tokens are laid out
per class again, still without those after the end tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coop_cmp.clip.packing import Packing, pack
from coop_cmp.clip.prompts import PromptLayout
from coop_cmp.clip.text import attend


class NotPackable(Exception):
    """The reason why a text encoder cannot run on packed tokens."""


@dataclass(frozen=True)
class Plan:
    """Where the tokens of C classes go."""

    packing: Packing  # the packed sequence of T tokens; its token ids are places in [C * L]
    own: Tensor  # [(S - P) * C], places of the tokens after the prefix; 0 after the end tokens
    classes: int

    def pack(self, x: Tensor) -> Tensor:
        """Pack tokens [C, L, d] into [1, T, d]."""
        return x.flatten(0, 1)[None, self.packing.tokens]

    def unpack(self, x: Tensor) -> Tensor:
        """Unpack [1, T, d] into tokens [C, S, d], S being the length of the longest prompt."""
        prefix = x[:, : self.packing.prefix].expand(self.classes, -1, -1)
        own = x[0, self.own].unflatten(0, (-1, self.classes)).transpose(0, 1)
        return torch.cat([prefix, own], dim=1)


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what is kept must also serve a later pass with gradients
def plan(ends: tuple[int, ...], shared: int, length: int, device: torch.device) -> Plan:
    """Make the plan for prompts [C, length] with these end tokens and shared first tokens."""
    first = range(shared)
    rows = [range(c * length + shared, c * length + end + 1) for c, end in enumerate(ends)]
    layout = PromptLayout(tuple((*first, *row) for row in rows))
    (packing,) = pack(layout, layout.n_tokens, device)
    tokens = packing.tokens.tolist()
    places = {tokens[place]: place for place in reversed(range(len(tokens)))}  # gaps hold token 0
    own = [
        places.get(c * length + position, 0) if position <= end else 0
        for position in range(packing.prefix, max(ends) + 1)
        for c, end in enumerate(ends)
    ]
    return Plan(packing, torch.tensor(own, device=device), len(ends))


class PackedPass:
    """One pass through the blocks on packed tokens."""

    def __init__(self, blocks: Sequence[Any], plan: Plan, unpack_at: int) -> None:
        self.blocks, self.plan = blocks, plan
        self.unpack_at = unpack_at  # the first block that is known to treat classes differently
        self.batch_first = bool(blocks[0].attn.batch_first)
        self.packed = False

    def run(
        self, i: int, forward: Callable[..., Any], inputs: Any, *more: Any, **named: Any
    ) -> Any:
        """Run block ``i``, whose input is a tensor or a list that begins with one."""
        if more:
            what = "a mask of its own" if isinstance(more[0], Tensor) else "more than tokens"
            raise NotPackable(f"its blocks are given {what}, which only fits all tokens")
        x = inputs if isinstance(inputs, Tensor) else inputs[0]
        if i == 0:
            self.packed = True
            x = self._turn(self.plan.pack(self._turn(x)))
        if self.packed and i < self.unpack_at:
            try:
                outputs = forward(_with(inputs, x), **named)
                y = outputs if isinstance(outputs, Tensor) else outputs[0]
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # shapes that do not fit: it expects all classes
                y = None
            if y is not None and y.shape == x.shape:
                return self._finished(i, outputs, y)
            self.unpack_at = i
        if self.packed:
            self.packed = False
            x = self._turn(self.plan.unpack(self._turn(x)))
        return forward(_with(inputs, x), **named)

    def attention(
        self, attn: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, **_: Any
    ) -> tuple[Tensor, None]:
        """Compute causal self-attention within each class, as `nn.MultiheadAttention` does."""
        if key is not query or value is not query or (attn.training and attn.dropout):
            raise NotPackable("its attention is not causal self-attention without dropout")
        x = self._turn(query)
        heads = F.linear(x, attn.in_proj_weight, attn.in_proj_bias)
        heads = heads.unflatten(-1, (3, attn.num_heads, -1))  # [C or 1, S or T, 3, heads, d/heads]
        if self.packed:
            packing = self.plan.packing
            mixed = attend(heads[0], packing.mask.to(heads.dtype), 1, packing)[None]
        else:
            q, k, v = heads.permute(2, 0, 3, 1, 4).unbind()
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = mixed.transpose(1, 2).flatten(2)
        return self._turn(attn.out_proj(mixed)), None

    def _finished(self, i: int, outputs: Any, y: Tensor) -> Any:
        if i + 1 < len(self.blocks):
            return outputs
        return _with(outputs, self._turn(self.plan.unpack(self._turn(y))))

    def _turn(self, x: Tensor) -> Tensor:
        """Turn the blocks' order of sequence and batch into batch first, and back."""
        return x if self.batch_first else x.transpose(0, 1)


@contextmanager
def packed(blocks: Sequence[Any], plan: Plan, unpack_at: int) -> Iterator[PackedPass]:
    """Let the blocks' own code run on packed tokens in the next pass."""
    this_pass = PackedPass(blocks, plan, unpack_at)
    modules = [module for block in blocks for module in (block, block.attn)]
    before = [vars(module).get("forward") for module in modules]  # somebody else may stand in
    for i, block in enumerate(blocks):
        block.attn.forward = partial(this_pass.attention, block.attn)
        block.forward = partial(this_pass.run, i, block.forward)
    try:
        yield this_pass
    finally:
        for module, forward in zip(modules, before, strict=True):
            del module.forward
            if forward is not None:
                module.forward = forward


def _with(inputs: Any, x: Tensor) -> Any:
    """Return a block's input with another tensor in it."""
    return x if isinstance(inputs, Tensor) else [x, *inputs[1:]]
