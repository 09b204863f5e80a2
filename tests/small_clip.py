"""Small CLIP models with random weights, shared by tests: open_clip's class and OpenAI's layout."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any

import open_clip
import torch
from open_clip.model import CLIP
from torch import Tensor, nn

WIDTH, HEADS, LAYERS, LENGTH, VOCABULARY = 32, 4, 3, 77, 49408
VISION = {
    "vit": {"image_size": 16, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16},
    "rn50": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16},
}
TEXT = {
    "context_length": LENGTH,
    "vocab_size": VOCABULARY,
    "width": WIDTH,
    "heads": HEADS,
    "layers": LAYERS,
}


class OpenAIBlock(nn.Module):
    """A block with the attribute names of OpenAI's package; sequences come first, batch second."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS)
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            OrderedDict(
                c_fc=nn.Linear(WIDTH, 4 * WIDTH), gelu=nn.GELU(), c_proj=nn.Linear(4 * WIDTH, WIDTH)
            )
        )
        self.attn_mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)

    def forward(self, x: Tensor) -> Tensor:
        mask, y = self.attn_mask.to(x), self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp(self.ln_2(x))


class OpenAICLIP(nn.Module):
    """The text side of a model with the attribute names of OpenAI's package."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positional_embedding = nn.Parameter(torch.empty(LENGTH, WIDTH))
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.Sequential(*(OpenAIBlock() for _ in range(LAYERS)))
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(torch.empty(WIDTH, embed_dim))

    def encode_text(self, text: Tensor) -> Tensor:
        x = self.token_embedding(text) + self.positional_embedding
        x = self.transformer.resblocks(x.transpose(0, 1)).transpose(0, 1)
        return self.ln_final(x)[range(len(x)), text.argmax(1)] @ self.text_projection


@cache
def small_clip(kind: str) -> Any:
    """A frozen model of kind ``vit``, ``rn50`` (both open_clip's class) or ``openai``."""
    torch.manual_seed(7)
    if kind == "openai":
        model: Any = OpenAICLIP(embed_dim=24)
    else:
        model = CLIP(24, VISION[kind], TEXT, quick_gelu=True)
    with torch.no_grad():
        # Larger than the usual initialisation, so that attention and context matter.
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and not name.startswith("visual"):
                parameter.normal_(std=0.25)
    return model.eval().requires_grad_(False)


tokenizer = open_clip.get_tokenizer("ViT-B-16")
