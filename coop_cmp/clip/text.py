"""The text tower on prompts with learned vectors: exact, without redundant computation.

CLIP's text tower is causal. Tokens after the end token cannot reach the feature, and the tokens
that all classes begin with have the same hidden states for every class. So nothing after the end
token is computed, the shared prefix is computed once, and each class's own tokens attend to it
through its keys and values. After the attention of the last block only the end tokens are
computed. All tokens that remain form one packed sequence, so that every layer is one large matrix
product and two attentions, whatever the number of classes and the lengths of their names.

That is the ``shared`` way. A tower whose tokens see later ones, as SigLIP's, or that ends otherwise
takes the ``full`` way: every token of every class goes through the model's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from coop_cmp.clip.load import LoadedCLIP
from coop_cmp.clip.packing import Packing, pack
from coop_cmp.clip.prompts import PromptLayout, text_layout
from coop_cmp.clip.tower import TextTower
from coop_cmp.devices import BUDGET
from coop_cmp.errors import UserError

# Floats kept per token and channel for the backward pass of one block with frozen weights, and
# held at once without a backward pass. Measured; only the size of the chunks depends on them.
GRAPH_FLOATS, WORKING_FLOATS = 20, 30
CHUNKS = 8  # of the full way in its budget
FILLER = 4  # a token where a learned vector goes, after the padding's: it ends no text
TRIED = ["a photo of a cat.", "a drawing of an old yorkshire terrier"]
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2}  # of normalised features


class TextEncoder(nn.Module):
    """Encode the prompts of a layout into text features.

    Works on every model that :class:`TextTower` knows.

    Args:
        clip_model: The model whose text tower is used; its weights may be frozen or trained.
        kind: ``shared`` is the fast way, where the tower allows it; ``naive`` runs every class's
            full-length sequence through every layer, one pass per image where prompts depend on it,
            as the CoOp codebase does.
        budget: Bytes of activations to stay below, except by ``naive``. Larger passes are cut into
            chunks, whose activations are computed again in the backward pass.
        mode: ``shared`` is compiled in this mode of :func:`torch.compile`; empty: not at all.

    Attributes:
        kind: ``full`` for a tower that cannot share.
    """

    clip: Any  # open_clip's and OpenAI's classes share no base but nn.Module
    kind: Literal["shared", "full", "naive"]

    def __init__(
        self,
        clip_model: nn.Module,
        kind: Literal["shared", "naive"] = "shared",
        budget: int = BUDGET,
        mode: str = "",
    ) -> None:
        super().__init__()
        self.clip = clip_model
        self.tower = TextTower(clip_model)
        self.kind = "full" if kind == "shared" and self.tower.reason else kind
        self.budget = budget
        self._run = _compiled(self._packed, mode) if mode else self._packed

    @property
    def width(self) -> int:
        return self.tower.width

    @property
    def dtype(self) -> torch.dtype:
        return self.tower.dtype

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
            Features [C, E], or [G, C, E] for G prompts.
        """
        in_prefix = sum(slot < 0 for slot in layout.prefix)
        if any(not vectors.shape[-2] == layout.n_context == in_prefix for vectors in deep):
            raise UserError(
                "deep prompts replace the context's hidden states, so they need one vector for "
                "each of the context's, and the whole context must stand before the class name "
                '(CLASS_TOKEN_POSITION "end")'
            )
        if context is None:
            context = self.tower.embedding.weight.new_zeros(0, self.width)
        if layout.class_specific:
            context = context.flatten(0, 1)  # [C * M, d]
        inputs = [t if t.dim() == 3 else t[None] for t in (context, *deep)]  # [G or 1, M, d]
        encode = self._shared if self.kind == "shared" else self._full
        features = encode(layout, inputs)
        grouped = any(t.dim() == 3 for t in (context, *deep))
        return features if grouped else features[0]

    def prompts_at_once(self, layout: PromptLayout) -> int:
        """How many prompts per class fit in the budget without a graph; 0 if not even one."""
        tokens = (
            layout.n_tokens if self.kind == "shared" else self._length(layout) * len(layout.slots)
        )
        return self._token_limit(graph=False) // tokens

    def _shared(self, layout: PromptLayout, inputs: Sequence[Tensor]) -> Tensor:
        """Run every distinct token once, in chunks of groups and classes that fit the budget."""
        graph = self._has_graph(inputs)
        limit = self._token_limit(graph)
        packings = pack(layout, min(limit, layout.n_tokens), inputs[0].device)
        groups = max(map(len, inputs))
        per_chunk = max(1, limit // layout.n_tokens)
        recompute = graph and (len(packings) > 1 or per_chunk < groups)

        features = []
        for g in range(0, groups, per_chunk):
            part = [t[g : g + per_chunk] if len(t) > 1 else t for t in inputs]
            pieces = [
                checkpoint(self._run, packing, *part, use_reentrant=False)
                if recompute
                else self._run(packing, *part)
                for packing in packings
            ]
            features.append(_joined(pieces, dim=1))
        return _joined(features)

    def _packed(self, packing: Packing, context: Tensor, *deep: Tensor) -> Tensor:
        """Features [G, C, E] of the classes of a packing under contexts [G, M, d]."""
        groups, shared, dtype = max([len(t) for t in (context, *deep)]), packing.prefix, self.dtype
        x = self.tower.embedding(packing.tokens).to(dtype).expand(groups, -1, -1)
        if len(packing.learned):
            # Indexing, since on a GPU the backward pass of index_select adds in any order.
            vectors = context[:, packing.source].to(x.dtype).expand(groups, -1, -1)
            x = x.index_copy(1, packing.learned, vectors)
        x = x + self.tower.module.positional_embedding[packing.positions].to(dtype)  # [G, P + T, d]
        own = x.shape[1] - shared
        if packing.whole:  # [G * (P + T), d]
            x, mask = x.flatten(0, 1), packing.mask
            prefix_step, own_step, first = shared + own, shared + own, shared
        else:  # all prefixes, then all own tokens: [G * P + G * T, d]
            x = torch.cat([part.flatten(0, 1) for part in x.split((shared, own), dim=1)])
            mask = packing.mask.repeat(groups, 1, 1, 1) if groups > 1 else packing.mask
            prefix_step, own_step, first = shared, own, groups * shared
        learned = _in_groups(packing.learned, groups, prefix_step) if deep else packing.learned
        ends = _in_groups(packing.ends, groups, own_step, first)
        blocks = self.tower.blocks
        for i, block in enumerate(blocks):
            if 0 < i <= len(deep):
                vectors = deep[i - 1].to(x.dtype).expand(groups, -1, -1)
                x = x.index_copy(0, learned, vectors.flatten(0, 1))
            packed = _queries_keys_values(block, x)
            mask = mask.to(packed.dtype)  # which autocast has chosen
            mixed = attend(packed, mask, groups, packing)
            if i + 1 == len(blocks):  # only the end tokens are read after the last block
                x, mixed = x.index_select(0, ends), mixed.index_select(0, ends)
            x = _finish(block, x, mixed)
        return self.tower.project(x).unflatten(0, (groups, -1))

    def _full(self, layout: PromptLayout, inputs: Sequence[Tensor]) -> Tensor:
        """Run every token of every class by the model's own code.

        The naive way makes one pass for each of the G prompts of a class. The full way makes
        chunks if the budget does not hold all, and recomputes those whose graph does not fit.
        """
        if len(inputs) > 1 and not self.tower.blocks:
            raise UserError(
                "deep prompts need a text tower of open_clip's own transformer; this one is "
                f"{self.tower.reason}"
            )
        length, classes, groups = self._length(layout), layout.n_classes, max(map(len, inputs))
        padded = [(*slots, *[layout.pad] * (length - len(slots))) for slots in layout.slots]
        table = torch.tensor(padded, device=inputs[0].device)  # [C, L]
        size, kept = classes, groups * classes
        if self.kind == "full":
            graph = self._has_graph(inputs)
            size = fits = max(1, self._token_limit(graph) // length)
            if graph and fits < groups * classes:
                size = max(1, fits // CHUNKS)
                kept = fits // size - 1
        features = []
        for i, rows in enumerate(torch.arange(groups * classes, device=table.device).split(size)):
            arguments = (layout, table[rows % classes], rows, *inputs)
            features.append(
                self._rows(*arguments)
                if i < kept
                else checkpoint(self._rows, *arguments, use_reentrant=False)
            )
        return _joined(features).unflatten(0, (groups, classes))

    def _rows(
        self, layout: PromptLayout, slots: Tensor, rows: Tensor, context: Tensor, *deep: Tensor
    ) -> Tensor:
        """Features [R, E] of rows of slots [R, L]; row ``g * C + c`` is class c in group g."""
        if not layout.n_context:
            return self.tower.encode(slots)
        learned = slots < 0
        index = (-1 - slots).clamp(min=0)
        group = rows // layout.n_classes
        if layout.class_specific:
            index = index + layout.n_context * (rows % layout.n_classes)[:, None]
        own = [t[group] if len(t) > 1 else t.expand(len(rows), -1, -1) for t in deep]
        source = group[:, None] if len(context) > 1 else 0
        ids = slots.where(~learned, layout.pad + FILLER)
        return self.tower.encode(ids, learned, context[source, index], own)

    def _length(self, layout: PromptLayout) -> int:
        """Tokens of a padded text."""
        return self.tower.length or max(map(len, layout.slots))

    def _has_graph(self, inputs: Sequence[Tensor]) -> bool:
        return torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in chain(inputs, self.parameters())
        )

    def _token_limit(self, graph: bool) -> int:
        """How many tokens fit in the budget."""
        layers = len(self.tower.blocks) or self.tower.module.config.num_hidden_layers
        floats = GRAPH_FLOATS * layers if graph else WORKING_FLOATS
        return max(1, self.budget // (floats * self.width * self.dtype.itemsize))


@torch.no_grad()
def check_text_encoder(clip: LoadedCLIP, encoder: TextEncoder) -> None:
    """Refuse a text tower for which the encoder's features differ from the model's own.

    Blocks may have parts that the encoder does not know.
    """
    device = encoder.tower.embedding.weight.device
    expected = clip.model.encode_text(clip.tokenizer(TRIED).to(device))
    found = encoder(text_layout(TRIED, clip.tokenizer))
    found, expected = (F.normalize(x.float(), dim=-1) for x in (found, expected))
    difference = float((found - expected).abs().max())
    if not difference < TOLERANCE[encoder.dtype]:
        way = ', or set MODEL.TEXT_ENCODER to "naive"' if encoder.kind == "shared" else ""
        raise UserError(
            f"{clip.name}: its text tower is not encoded as the model does it (features differ by "
            f"{difference:.2g}); choose a plain CLIP model such as ViT-B/16{way}"
        )


def _compiled(run: Callable[..., Tensor], mode: str) -> Callable[..., Tensor]:
    """A pass as one graph for each of the shapes that a method has, of which there are some."""
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    graph = torch.compile(run, fullgraph=True, mode=mode)

    def call(*inputs: Any) -> Tensor:
        return graph(*inputs).clone()  # a CUDA graph puts its next result into the same place

    return call


def _joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Several tensors as one; a single one is not copied."""
    return torch.cat(list(parts), dim) if len(parts) > 1 else parts[0]


def _in_groups(places: Tensor, groups: int, step: int, first: int = 0) -> Tensor:
    """Places [K] of a group in all of them [G * K], of which one begins every ``step`` tokens."""
    if groups == 1:
        return places + first if first else places
    begin = torch.arange(first, first + groups * step, step, device=places.device)
    return (begin[:, None] + places).flatten()


def _queries_keys_values(block: Any, x: Tensor) -> Tensor:
    """Queries, keys and values [L, 3, heads, d/heads] of states [L, d]."""
    attention = block.attn
    packed = F.linear(block.ln_1(x), attention.in_proj_weight, attention.in_proj_bias)
    return packed.view(len(x), 3, attention.num_heads, -1)


def attend(packed: Tensor, mask: Tensor, groups: int, packing: Packing) -> Tensor:
    """Attention of each prefix to itself, and of blocks of own tokens to it and to themselves.

    Args:
        packed: Queries, keys and values [G * P + G * B * K, 3, heads, d/heads].
        mask: [G * B, 1, K, P + K or more], or that of a packing that is whole.
        groups: G.
        packing: P and B, or rows.

    Returns:
        [G * P + G * B * K, d]
    """
    if len(packing.rows):
        return _attend_in_rows(packed, packing)
    if packing.whole:
        return _attend_in_one(packed, mask, groups)
    sizes = groups * packing.prefix, len(packed) - groups * packing.prefix
    first, own = (part.permute(1, 0, 2, 3) for part in packed.split(sizes))
    first = first.unflatten(1, (groups, -1)).transpose(2, 3)  # [3, G, heads, P, d/heads]
    own = own.unflatten(1, (groups * packing.blocks, -1)).transpose(2, 3)
    first_query, first_both = first.split((1, 2))
    query, both = own.split((1, 2))  # [1 and 2, G * B, heads, K, d/heads]
    prefixes = first_both[:, :, None].expand(-1, -1, packing.blocks, -1, -1, -1)
    both = torch.cat([prefixes, both.unflatten(1, (groups, -1))], dim=-2).flatten(1, 2)
    (first_key, first_value), (key, value) = first_both.unbind(), both.unbind()
    mix = F.scaled_dot_product_attention
    mixed = [
        mix(first_query.squeeze(0), first_key, first_value, is_causal=True),
        mix(query.squeeze(0), key, value, mask[..., : key.shape[-2]]),
    ]
    return torch.cat([part.transpose(1, 2).flatten(2).flatten(0, 1) for part in mixed])


def _attend_in_one(packed: Tensor, mask: Tensor, groups: int) -> Tensor:
    """Attention of each group's prefix and own tokens, with rows of the mask for both."""
    rows = packed.view(groups, -1, *packed.shape[1:])
    query, key, value = rows.permute(2, 0, 3, 1, 4).unbind()  # [G, heads, P + K, d/heads]
    mixed = F.scaled_dot_product_attention(query, key, value, mask[..., : key.shape[-2]])
    return mixed.transpose(1, 2).reshape(len(packed), -1)


def _attend_in_rows(packed: Tensor, packing: Packing) -> Tensor:
    """Attention of each class to itself; a row's places after the end token have no effect.

    On a GPU the backward pass of index_select adds in any order. That concerns the prefix alone,
    which all rows have, and in which there is nothing learned where classes have their own context.
    """
    rows = packed.index_select(0, packing.rows.flatten()).unflatten(0, packing.rows.shape)
    query, key, value = (part.transpose(1, 2) for part in rows.unbind(2))  # [C, heads, S, d/heads]
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return mixed.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, packing.places)


def _finish(block: Any, x: Tensor, mixed: Tensor) -> Tensor:
    """The part of a block after the attention product: output projection, residuals, MLP."""
    scale_1, scale_2 = getattr(block, "ls_1", None), getattr(block, "ls_2", None)
    out = block.attn.out_proj(mixed)
    x = x + (scale_1(out) if scale_1 is not None else out)
    out = block.mlp(block.ln_2(x))
    return x + (scale_2(out) if scale_2 is not None else out)
