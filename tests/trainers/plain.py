"""CLIP with learned vectors, written down slowly: one sequence at a time, all 77 tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def embed(clip: Any, prompt: str, vectors: Tensor | None = None, first: int = 1) -> Tensor:
    """Embeddings [77, d] of a prompt, with vectors [M, d] in the place of some of its tokens."""
    tokens = clip.tokenizer([prompt])[0]
    rows = clip.model.token_embedding(tokens)
    if vectors is not None:
        rows = torch.cat([rows[:first], vectors, rows[first + len(vectors) :]])
    return rows


def end_of(clip: Any, prompt: str) -> int:
    """Where the end token stands."""
    return int(clip.tokenizer([prompt])[0].argmax())


def text_feature(clip: Any, rows: Tensor, end: int, deep: Sequence[Tensor] = ()) -> Tensor:
    """The normalised feature [E] of one sequence [77, d].

    Before block i >= 1 the tokens behind the start token become ``deep[i - 1]``.
    """
    model = clip.model
    x = (rows + model.positional_embedding)[None]
    mask = torch.full((len(rows), len(rows)), float("-inf")).triu(1)
    for i, block in enumerate(model.transformer.resblocks):
        if 0 < i <= len(deep):
            x = torch.cat([x[:, :1], deep[i - 1][None], x[:, 1 + len(deep[i - 1]) :]], dim=1)
        x = block(x, attn_mask=mask)
    return F.normalize(model.ln_final(x)[0, end] @ model.text_projection, dim=-1)


def prompt_feature(
    clip: Any, prompt: str, vectors: Tensor | None = None, deep: Sequence[Tensor] = ()
) -> Tensor:
    """The normalised feature [E] of a prompt with vectors behind its start."""
    return text_feature(clip, embed(clip, prompt, vectors), end_of(clip, prompt), deep)


def logits_of(clip: Any, image_features: Tensor, text_features: Tensor) -> Tensor:
    """Scaled cosines [B, C]."""
    return clip.model.logit_scale.exp() * image_features @ text_features.t()


def image_features(clip: Any, image: Tensor) -> Tensor:
    """Normalised features [B, E]."""
    return F.normalize(clip.model.visual(image), dim=-1)
