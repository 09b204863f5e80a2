"""Small CLIP models with random weights, shared by tests: open_clip's class and OpenAI's layout."""

from __future__ import annotations

import json
from collections import OrderedDict
from functools import cache
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.model import CLIP
from safetensors.torch import save_file
from torch import Tensor, nn

from coop_cmp.clip import add_models

WIDTH, HEADS, LAYERS, LENGTH, VOCABULARY = 32, 4, 3, 77, 49408
RESNET: dict[str, Any] = {"image_size": 32, "layers": [1] * 4, "width": 8, "head_width": 16}


def vit(image: int, patch: int, width: int, layers: int, head: int) -> dict[str, Any]:
    """Describe a vision transformer as open_clip does."""
    size = {"image_size": image, "patch_size": patch, "width": width}
    return {**size, "layers": layers, "head_width": head}


def described(vision: dict[str, Any], heads: int = 2, layers: int = 2) -> dict[str, Any]:
    """Describe a small CLIP model as open_clip does."""
    words = {"context_length": LENGTH, "vocab_size": VOCABULARY}
    text = {**words, "width": WIDTH, "heads": heads, "layers": layers}
    return {"embed_dim": 32, "vision_cfg": vision, "text_cfg": text}


def register(folder: Path, name: str, config: dict[str, Any], seed: int) -> Path:
    """Make a described model known by name, and return its file of random weights."""
    (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder / f"{name}.json")
    torch.manual_seed(seed)
    state = open_clip.create_model(name).state_dict()
    weights = folder / f"{name}.safetensors"
    save_file({key: value.contiguous() for key, value in state.items()}, weights)
    add_models(folder)
    return weights


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
        vision = vit(16, 8, 32, 2, 16) if kind == "vit" else RESNET
        text = described(vision, HEADS, LAYERS)["text_cfg"]
        model = CLIP(24, vision, text, quick_gelu=True)
    with torch.no_grad():
        # Larger than the usual initialisation, so that attention and context matter.
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and not name.startswith("visual"):
                parameter.normal_(std=0.25)
    return model.eval().requires_grad_(False)


tokenizer = open_clip.get_tokenizer("ViT-B-16")
