"""The adapter between a CLIP model and everything that walks its text tower.

It says where the tower is in open_clip's classes (``CLIP``, ``CustomTextCLIP``, ``CoCa``) and in
OpenAI's ``clip.model.CLIP``, and which way of encoding is exact for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from coop_cmp.errors import UserError

ENDS = ("argmax", "eos")  # pooling by the token that ends a text
HUGGING_FACE = "a Hugging Face tower"
NOT_CAUSAL = "its tokens see later ones"
APPENDED = "its feature is that of a token after the padding"


def planned_way(config: Mapping[str, Any]) -> tuple[Literal["shared", "full"], str]:
    """Return the way of a text tower by open_clip's description of it, and why it is not shared."""
    text = config.get("text_cfg", {})
    if text.get("hf_model_name"):
        return "full", HUGGING_FACE
    if text.get("no_causal_mask"):
        return "full", NOT_CAUSAL
    if text.get("embed_cls"):
        return "full", APPENDED
    if (pool := text.get("pool_type", "argmax")) not in ENDS:
        return "full", f"its feature is that of the {pool} token"
    return "shared", ""


class TextTower:
    """The text tower of a model.

    Attributes:
        module: Whose attributes are the tower's parts: the model itself, or its ``text``.
        embedding: The table of tokens.
        blocks: The transformer's blocks; none for a Hugging Face tower, whose blocks have many
            forms.
        length: Tokens of a text, padding included; None where padding is masked, so that the
            longest text decides.
        reason: Why the tower cannot share the tokens that all prompts begin with; empty if it can.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        text: Any = getattr(model, "text", None)
        apart = isinstance(text, nn.Module)
        self.module: Any = text if apart else model
        hugging_face = hasattr(self.module, "pooler") and hasattr(self.module, "config")
        self.embedding: Any
        if hugging_face:
            self.embedding = self.module.transformer.get_input_embeddings()
            self.blocks: Any = ()
            self.length = None
        else:
            self.embedding = getattr(self.module, "token_embedding", None)
            self.blocks = getattr(getattr(self.module, "transformer", None), "resblocks", ())
            places = getattr(self.module, "positional_embedding", ())
            self.length = getattr(self.module, "context_length", len(places))
        if not isinstance(self.embedding, nn.Embedding) or not (hugging_face or self.blocks):
            raise UserError(
                f"{type(model).__name__} has no text transformer with a table of tokens, into "
                "which learned vectors could be put"
            )
        self.reason = self._reason()
        # In a tuple, since it is no part of its own.
        self._linear = (next(m for m in self.module.modules() if isinstance(m, nn.Linear)),)

    @property
    def width(self) -> int:
        """Numbers in a token's vector."""
        return self.embedding.embedding_dim

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights; tables of tokens and norms may stay in single precision."""
        return self._linear[0].weight.dtype

    @property
    def embed_dim(self) -> int:
        """Numbers in a feature."""
        projection = getattr(self.module, "text_projection", None)
        if isinstance(projection, nn.Linear):
            return projection.out_features
        return self.module.output_dim if projection is None else projection.shape[1]

    def _reason(self) -> str:
        module = self.module
        if not self.blocks:
            return HUGGING_FACE
        if getattr(module, "attn_mask", getattr(self.blocks[0], "attn_mask", None)) is None:
            return NOT_CAUSAL
        if getattr(module, "cls_emb", None) is not None:
            return APPENDED
        pool = getattr(module, "text_pool_type", getattr(module, "pool_type", "argmax"))
        if pool not in ENDS:
            return f"its feature is that of the {pool} token"
        if not all(isinstance(block.attn, nn.MultiheadAttention) for block in self.blocks):
            return "its attention is not plain"
        return ""

    def project(self, x: Tensor) -> Tensor:
        """Features [..., E] of states [..., d] after the last block."""
        x = self.module.ln_final(x)
        projection = self.module.text_projection
        if projection is None:
            return x
        return projection(x) if isinstance(projection, nn.Module) else x @ projection

    def encode(
        self,
        ids: Tensor,
        learned: Tensor | None = None,
        vectors: Tensor | None = None,
        deep: Sequence[Tensor] = (),
    ) -> Tensor:
        """Features [N, E] of token ids [N, L] by the model's own code, with learned vectors.

        Args:
            ids: Any id where a learned vector goes that neither pads nor ends a text.
            learned: Where these are, [N, L].
            vectors: Embeddings [N, L, d] to take there.
            deep: Vectors [N, M, d] that replace the hidden states of the M learned places before
                block 1, 2, ...; the places must be the same in all texts.
        """
        if learned is None or vectors is None:
            return self.model.encode_text(ids)
        places = learned[0].nonzero()[:, 0] if deep else None

        def embed(module: nn.Module, args: Any, found: Tensor) -> Tensor:
            return torch.where(learned[..., None], vectors.to(found.dtype), found)

        def replace(new: Tensor, block: nn.Module, args: Any) -> Any:
            x, dim = args[0], int(batch_first(block))
            new = new.to(x.dtype) if dim else new.to(x.dtype).transpose(0, 1)
            return (x.index_copy(dim, places, new), *args[1:])

        with ExitStack() as hooks:
            hooks.enter_context(self.embedding.register_forward_hook(embed))
            for block, new in zip(self.blocks[1:], deep, strict=False):
                hook = block.register_forward_pre_hook(partial(replace, new), prepend=True)
                hooks.enter_context(hook)
            return self.model.encode_text(ids)


def batch_first(block: Any) -> bool:
    """Whether a block takes [N, L, d], not [L, N, d] as OpenAI's."""
    attention = block.attn
    return getattr(attention, "batch_first", not isinstance(attention, nn.MultiheadAttention))
