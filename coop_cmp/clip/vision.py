"""Learned tokens in the image tower of a vision transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coop_cmp.clip.text import run_block
from coop_cmp.errors import UserError

NEEDED = ("conv1", "class_embedding", "positional_embedding", "ln_pre", "transformer", "ln_post")


def check_vision_transformer(name: str, visual: Any) -> None:
    """Refuse an image tower that has no sequence of tokens to add prompts to."""
    pooled = getattr(visual, "pool_type", "tok") != "tok" or getattr(visual, "attn_pool", None)
    if pooled or not all(hasattr(visual, attribute) for attribute in NEEDED):
        raise UserError(
            f"{name} has no sequence of image tokens with a class token, into which learned tokens "
            "could be put: choose a vision transformer such as ViT-B/16 (MODEL.BACKBONE.NAME)"
        )


def prompted_image_features(visual: Any, image: Tensor, prompts: Sequence[Tensor]) -> Tensor:
    """Image features [B, E] of a vision transformer with M learned tokens, not normalised.

    The tokens stand after the patches. They get no positional embedding; the first ones pass the
    layer normalisation before the blocks, the deeper ones do not.

    Args:
        visual: The image tower of open_clip's or OpenAI's CLIP.
        image: [B, 3, H, W]
        prompts: Tokens [M, d] to begin with, and those that replace them before block 1, 2, ...
    """
    patches = visual.conv1(image).flatten(2).transpose(1, 2)  # [B, N, d]
    start = visual.class_embedding.to(patches.dtype).expand(patches.shape[0], 1, -1)
    x = torch.cat([start, patches], dim=1) + visual.positional_embedding.to(patches.dtype)
    length = x.shape[1]
    x = visual.ln_pre(_put(x, length, prompts[0]))
    for i, block in enumerate(visual.transformer.resblocks):
        if 0 < i < len(prompts):
            x = _put(x, length, prompts[i])
        x = run_block(block, x)
    return visual.ln_post(x[:, 0]) @ visual.proj


def _put(x: Tensor, length: int, tokens: Tensor) -> Tensor:
    """Sequences [B, length + M, d] whose last M tokens are the given ones."""
    return torch.cat([x[:, :length], tokens.to(x.dtype).expand(x.shape[0], -1, -1)], dim=1)
