"""What is looked at before a model is used: that it is encoded and fed as its library would."""

from __future__ import annotations

from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from open_clip.pretrained import get_pretrained_cfg

from coop_cmp.clip.load import LoadedCLIP
from coop_cmp.clip.prompts import text_layout
from coop_cmp.clip.text import TextEncoder
from coop_cmp.config.defaults import OPENAI_NAMES
from coop_cmp.errors import UserError

TEXTS = ["a photo of a cat.", "a drawing of an old yorkshire terrier"]
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2}  # of normalised features


@torch.no_grad()
def check_text_encoder(clip: LoadedCLIP, encoder: TextEncoder) -> None:
    """Refuse a text tower that the encoder encodes otherwise than the model itself does.

    Blocks may have parts that the encoder does not know, such as normalised queries and keys.
    """
    device = clip.model.token_embedding.weight.device
    expected = clip.model.encode_text(clip.tokenizer(TEXTS).to(device))
    found = encoder(text_layout(TEXTS, clip.tokenizer))
    found, expected = (F.normalize(x.float(), dim=-1) for x in (found, expected))
    difference = float((found - expected).abs().max())
    if not difference < TOLERANCE[encoder.dtype]:
        way = ', or set MODEL.TEXT_ENCODER to "naive"' if encoder.kind == "shared" else ""
        raise UserError(
            f"{clip.name}: its text tower is not encoded as the model does it (features differ by "
            f"{difference:.2g}); choose a plain CLIP model such as ViT-B/16{way}"
        )


def check_preprocessing(node: Any, name: str, tag: str) -> None:
    """Refuse images that are not prepared as the pre-trained weights want them.

    Args:
        node: ``cfg.INPUT``
        name: The model's.
        tag: Of its weights; those from a file do not tell.
    """
    known = get_pretrained_cfg(OPENAI_NAMES.get(name, name), tag)
    if not known:
        return
    wanted = {
        "PIXEL_MEAN": list(known.get("mean") or open_clip.OPENAI_DATASET_MEAN),
        "PIXEL_STD": list(known.get("std") or open_clip.OPENAI_DATASET_STD),
        "INTERPOLATION": known.get("interpolation") or "bicubic",
    }
    for key, right in wanted.items():
        given = node[key]
        same = given == right
        if isinstance(right, list):
            same = max(abs(a - b) for a, b in zip(given, right, strict=True)) < 1e-3
        if not same:
            raise UserError(
                f'INPUT.{key} is {given}, but the weights "{tag}" of {name} were trained with '
                f"{right}: set INPUT.{key} to that"
            )
