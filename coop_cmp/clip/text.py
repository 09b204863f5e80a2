"""The text tower on prompts with learned vectors: exact, and without the work that cannot matter.

CLIP's text tower is causal. Tokens behind the end token cannot reach the feature, and the tokens
that all classes begin with have the same hidden states for every class. So nothing behind the end
token is computed, the shared prefix is computed once per layer, and each class's own tokens attend
to it through its keys and values. In the last block only the end token is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from coop_cmp.clip.prompts import PromptLayout
from coop_cmp.errors import UserError

KeysValues = tuple[Tensor, Tensor]
# Floats kept per token and channel for the backward pass of one block with frozen weights, and
# held at once without a backward pass. Measured; only the size of the chunks depends on them.
GRAPH_FLOATS, WORKING_FLOATS = 20, 16


class TextEncoder(nn.Module):
    """Encode the prompts of a layout into text features.

    Works on every model with the attributes that open_clip's and OpenAI's ``CLIP`` share.

    Args:
        clip_model: The model whose text tower is used; its weights may be frozen or trained.
        kind: ``shared`` is the fast way; ``naive`` runs every class's full-length sequence through
            every layer, as the CoOp codebase does.
        budget: Bytes of activations to stay below. Larger passes are cut into chunks, whose
            activations are computed again in the backward pass.
    """

    clip: Any  # open_clip's and OpenAI's classes share no base but nn.Module

    def __init__(
        self,
        clip_model: nn.Module,
        kind: Literal["shared", "naive"] = "shared",
        budget: int = 4 << 30,
    ) -> None:
        super().__init__()
        if kind not in ("shared", "naive"):
            raise UserError(f'MODEL.TEXT_ENCODER must be "shared" or "naive", got "{kind}"')
        self.clip = clip_model
        self.kind = kind
        self.budget = budget

    @property
    def width(self) -> int:
        return self.clip.ln_final.weight.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.clip.transformer.resblocks[0].mlp.c_fc.weight.dtype

    def forward(
        self,
        layout: PromptLayout,
        context: Tensor | None = None,
        deep: Sequence[Tensor] = (),
    ) -> Tensor:
        """Text features, not normalised.

        Args:
            layout: The prompts of C classes.
            context: Learned vectors: [M, d] shared, [C, M, d] if the layout is class-specific, or
                [G, M, d] for G prompts per class (one per image, or an ensemble). None for plain
                text.
            deep: Vectors [M, d] (or [G, M, d]) that replace the context's hidden states before
                block 1, 2, ...

        Returns:
            Features [C, E], or [G, C, E] for a context of G prompts.
        """
        grouped = context is not None and context.dim() == 3 and not layout.class_specific
        if context is None:
            context = self.clip.token_embedding.weight.new_zeros(0, self.width)
        if not grouped and not layout.class_specific:
            context = context[None]  # [1, M, d]
        deep = [vectors if vectors.dim() == 3 else vectors[None] for vectors in deep]
        encode = self._shared if self.kind == "shared" else self._naive
        features = encode(layout, context, deep)
        return features if grouped else features[0]

    def _shared(self, layout: PromptLayout, context: Tensor, deep: Sequence[Tensor]) -> Tensor:
        states = self._prefix_states(layout, context, deep)
        pieces = [self._bucket(layout, bucket, context, states) for bucket in layout.buckets]
        order = torch.tensor([c for bucket in layout.buckets for c in bucket])
        return torch.cat(pieces, dim=1)[:, order.argsort().to(pieces[0].device)]

    def _prefix_states(
        self, layout: PromptLayout, context: Tensor, deep: Sequence[Tensor]
    ) -> list[KeysValues]:
        """Keys and values [G, heads, P, d/heads] of the shared prefix in every block."""
        shared = context[:1] if layout.class_specific else context
        slots = torch.tensor(layout.prefix)
        x = self._embed(slots[None], shared)[:, 0] + self._positions(0, len(slots))  # [G, P, d]
        learned = (slots < 0).nonzero()[:, 0].to(x.device)
        if len(deep) and any(len(vectors[0]) != len(learned) for vectors in deep):
            raise UserError(
                "deep prompts replace the context's hidden states, so the whole context must "
                'stand before the class name (CLASS_TOKEN_POSITION "end")'
            )
        blocks = self.clip.transformer.resblocks
        states = []
        for i, block in enumerate(blocks):
            if 0 < i <= len(deep):
                x = x.index_copy(1, learned, deep[i - 1].to(x.dtype).expand(len(x), -1, -1))
            query, key, value = _heads(block, block.ln_1(x))
            states.append((key, value))
            if i + 1 < len(blocks):  # nothing reads the prefix behind the last block's keys
                mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
                x = _finish(block, x, mixed.transpose(1, 2).flatten(2))
        return states

    def _bucket(
        self,
        layout: PromptLayout,
        classes: tuple[int, ...],
        context: Tensor,
        states: list[KeysValues],
    ) -> Tensor:
        """Features [G, C, E] of classes whose sequences have one length, in chunks."""
        start = len(layout.prefix)
        slots = torch.tensor([layout.slots[c][start:] for c in classes])  # [C, S]
        if layout.class_specific:
            context = context[list(classes)]
        own = self._embed(slots, context, layout.class_specific)  # [G or 1, C, S, d]
        own = own + self._positions(start, start + slots.shape[1])
        groups = len(states[0][0])
        graph = torch.is_grad_enabled() and any(
            t.requires_grad for t in (own, *states[-1], self.clip.text_projection)
        )
        rows = self._rows(slots.shape[1], graph)
        per_group = min(groups, max(1, rows // len(classes)))
        per_class = min(len(classes), max(1, rows // per_group))
        chunked = graph and (per_group < groups or per_class < len(classes))

        features = []
        for g in range(0, groups, per_group):
            part = [(k[g : g + per_group], v[g : g + per_group]) for k, v in states]
            x = own[g : g + per_group] if len(own) > 1 else own
            x = x.expand(len(part[0][0]), -1, -1, -1)
            row = []
            for piece in x.split(per_class, dim=1):
                flat = [tensor for pair in part for tensor in pair]
                if chunked:
                    row.append(checkpoint(self._suffix, piece, *flat, use_reentrant=False))
                else:
                    row.append(self._suffix(piece, *flat))
            features.append(torch.cat(row, dim=1))
        return torch.cat(features)

    def _suffix(self, x: Tensor, *states: Tensor) -> Tensor:
        """Run suffixes [G, C, S, d] through the tower; features [G, C, E] of their end tokens."""
        blocks = self.clip.transformer.resblocks
        length = x.shape[2]
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        for i, block in enumerate(blocks):
            query, key, value = _heads(block, block.ln_1(x))  # [G, C, heads, S, d/heads]
            if i + 1 == len(blocks):
                x, query, future = x[:, :, -1:], query[..., -1:, :], future[-1:]
            mixed = _attend(query, key, value, states[2 * i], states[2 * i + 1], future)
            x = _finish(block, x, mixed)
        return self._project(x[:, :, 0])

    def _naive(self, layout: PromptLayout, context: Tensor, deep: Sequence[Tensor]) -> Tensor:
        length = self.clip.positional_embedding.shape[0]
        padded = [(*slots, *[0] * (length - len(slots))) for slots in layout.slots]
        ends = torch.tensor([len(slots) - 1 for slots in layout.slots])
        slots = torch.tensor(padded)
        x = self._embed(slots, context, layout.class_specific) + self._positions(0, length)
        groups, classes = x.shape[:2]
        x = x.flatten(0, 1)  # [G * C, L, d]
        learned = (slots[0] < 0).nonzero()[:, 0].to(x.device)
        mask = torch.full((length, length), float("-inf"), device=x.device, dtype=x.dtype).triu(1)
        for i, block in enumerate(self.clip.transformer.resblocks):
            if 0 < i <= len(deep):
                vectors = deep[i - 1].to(x.dtype).expand(groups, -1, -1)
                x = x.index_copy(1, learned, vectors.repeat_interleave(classes, dim=0))
            x = _whole_block(block, x, mask)
        x = x.unflatten(0, (groups, classes))
        return self._project(x[:, torch.arange(classes), ends])

    def _embed(self, slots: Tensor, context: Tensor, class_specific: bool = False) -> Tensor:
        """Embeddings [G or 1, C, S, d] of slots [C, S], the learned ones taken from the context."""
        device = self.clip.token_embedding.weight.device
        slots = slots.to(device)
        fixed = self.clip.token_embedding(slots.clamp(min=0)).to(self.dtype)  # [C, S, d]
        is_learned = slots < 0
        if not bool(is_learned.any()):
            return fixed[None]
        index = (-1 - slots).clamp(min=0)
        if class_specific:  # context [C, M, d]
            picked = context[torch.arange(len(slots), device=device)[:, None], index][None]
        else:
            picked = context[:, index]  # [G, C, S, d]
        return torch.where(is_learned[..., None], picked.to(self.dtype), fixed)

    def _positions(self, start: int, stop: int) -> Tensor:
        return self.clip.positional_embedding[start:stop].to(self.dtype)

    def _project(self, x: Tensor) -> Tensor:
        x = self.clip.ln_final(x)
        projection = self.clip.text_projection
        return projection(x) if isinstance(projection, nn.Module) else x @ projection

    def _rows(self, length: int, graph: bool) -> int:
        """How many sequences of a length fit in the budget."""
        layers = len(self.clip.transformer.resblocks)
        floats = GRAPH_FLOATS * layers if graph else WORKING_FLOATS
        size = torch.empty((), dtype=self.dtype).element_size()
        return max(1, self.budget // (floats * length * self.width * size))


def _heads(block: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [..., heads, S, d/heads] of normalised states [..., S, d]."""
    attention = block.attn
    packed = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = packed.unflatten(-1, (3, attention.num_heads, -1)).unbind(-3)
    return query.transpose(-3, -2), key.transpose(-3, -2), value.transpose(-3, -2)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    prefix_key: Tensor,
    prefix_value: Tensor,
    mask: Tensor,
) -> Tensor:
    """Attention of suffixes to their group's prefix and to themselves.

    The classes of a group share the prefix, so all their queries meet its keys in one product and
    the keys are never copied per class.

    Args:
        query: [G, C, heads, Q, d/heads]; key, value: [G, C, heads, S, d/heads].
        prefix_key, prefix_value: [G, heads, P, d/heads].
        mask: [Q, S], true where a query must not look.

    Returns:
        [G, C, Q, d]
    """
    classes, queries = query.shape[1], query.shape[3]
    query = query * query.shape[-1] ** -0.5
    rows = query.transpose(1, 2).flatten(2, 3)  # [G, heads, C * Q, d/heads]
    to_prefix = (rows @ prefix_key.transpose(-1, -2)).unflatten(2, (classes, queries))
    to_own = (query @ key.transpose(-1, -2)).masked_fill(mask, float("-inf")).transpose(1, 2)
    weights = torch.cat([to_prefix, to_own], dim=-1).softmax(dim=-1)  # [G, heads, C, Q, P + S]
    for_prefix, for_own = weights.to(value.dtype).split([prefix_key.shape[2], key.shape[3]], dim=-1)
    mixed = (for_prefix.flatten(2, 3) @ prefix_value).unflatten(2, (classes, queries))
    mixed = mixed + (for_own.transpose(1, 2) @ value).transpose(1, 2)  # [G, heads, C, Q, d/heads]
    return mixed.permute(0, 2, 3, 1, 4).flatten(3)


def _finish(block: Any, x: Tensor, mixed: Tensor) -> Tensor:
    """The part of a block behind the attention product: output projection, residuals, MLP."""
    scale_1, scale_2 = getattr(block, "ls_1", None), getattr(block, "ls_2", None)
    out = block.attn.out_proj(mixed)
    x = x + (scale_1(out) if scale_1 is not None else out)
    out = block.mlp(block.ln_2(x))
    return x + (scale_2(out) if scale_2 is not None else out)


def _whole_block(block: Any, x: Tensor, mask: Tensor) -> Tensor:
    """Run a block as its library does, on sequences [N, L, d]."""
    if hasattr(block, "attn_mask"):  # OpenAI's block knows its mask and puts the batch second
        return block(x.transpose(0, 1)).transpose(0, 1)
    if block.attn.batch_first:
        return block(x, attn_mask=mask)
    return block(x.transpose(0, 1), attn_mask=mask).transpose(0, 1)
