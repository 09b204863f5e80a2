"""How images are prepared for a model's weights, by open_clip's tables and descriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coop_cmp.errors import UserError, first_line
from coop_cmp.files import read_file

SCHEMES = ("hf-hub:", "local-dir:")
TOKENIZER_KEYS = {"clean", "strip_sep_token"}  # another, as trust_remote_code, could run code
MOST_LAYERS = 1000
# OpenAI's own architectures, by the names the CoOp codebase uses. They need QuickGELU.
OPENAI_NAMES = {
    "RN50": "RN50",
    "RN101": "RN101",
    "RN50x4": "RN50x4",
    "RN50x16": "RN50x16",
    "RN50x64": "RN50x64",
    "ViT-B/32": "ViT-B-32",
    "ViT-B/16": "ViT-B-16",
    "ViT-L/14": "ViT-L-14",
    "ViT-L/14@336px": "ViT-L-14-336",
}
CLIPS = {
    "INPUT.INTERPOLATION": "bicubic",
    "INPUT.RESIZE_MODE": "shortest",
    "INPUT.PIXEL_MEAN": [0.48145466, 0.4578275, 0.40821073],
    "INPUT.PIXEL_STD": [0.26862954, 0.26130258, 0.27577711],
}


def preprocessing(backbone: str, weights: str) -> dict[str, Any]:
    """Return the settings of images that a model's weights were trained with.

    A file of weights has none of its own: then those that all tags of the model agree on.

    Args:
        backbone: As MODEL.BACKBONE.NAME takes it.
        weights: As MODEL.BACKBONE.WEIGHTS takes it.
    """
    if backbone.startswith(SCHEMES):
        return _settings(read_description(backbone).get("preprocess_cfg") or {})
    if backbone in OPENAI_NAMES and weights in ("", "openai"):
        return dict(CLIPS)  # without open_clip, which would load torch
    from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model

    name = OPENAI_NAMES.get(backbone, backbone)
    if found := get_pretrained_cfg(name, weights):
        return _settings(found)
    known = [_settings(get_pretrained_cfg(name, t)) for t in list_pretrained_tags_by_model(name)]
    same = backbone not in OPENAI_NAMES and known and all(one == known[0] for one in known)
    return known[0] if same else dict(CLIPS)


def read_description(name: str) -> dict[str, Any]:
    """Return ``open_clip_config.json`` of ``hf-hub:<repository>`` or ``local-dir:<folder>``."""
    scheme, _, place = name.partition(":")
    path = Path(place).expanduser() / "open_clip_config.json"
    try:
        if scheme == "hf-hub":
            from open_clip.pretrained import download_pretrained_from_hf

            path = Path(download_pretrained_from_hf(place, filename="open_clip_config.json"))
        found = json.loads(read_file(path), parse_constant=_refuse_constant)
        _check_description(found)
    except Exception as error:  # network libraries raise many kinds
        raise UserError(
            f"{name} (MODEL.BACKBONE.NAME) has no open_clip_config.json that can be read: "
            f"{first_line(error)}"
        ) from error
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _check_description(found: Any) -> None:
    """Refuse what is no description of a model, or would run code of its folder."""
    model = found["model_cfg"]
    vision, text, images = model["vision_cfg"], model["text_cfg"], found.get("preprocess_cfg") or {}
    if not all(isinstance(node, dict) for node in (vision, text, images)):
        raise ValueError("vision_cfg, text_cfg and preprocess_cfg must be objects")
    tokenizer = dict(text.get("tokenizer_kwargs", {}))
    if strange := sorted(tokenizer.keys() - TOKENIZER_KEYS):
        raise ValueError(f"tokenizer_kwargs: {strange[0]} is not taken from a description")
    if not all(isinstance(images.get(key) or [], list) for key in ("mean", "std")):
        raise ValueError("mean and std must be lists")
    size = vision.get("image_size", 224)
    if not all(type(side) is int for side in (size if isinstance(size, list) else [size])):
        raise ValueError(f"image_size is {size!r}")
    for tower in (vision, text, model.get("multimodal_cfg") or {}):
        layers = tower.get("layers", 0)
        listed = layers if isinstance(layers, list) else [layers]
        if not all(type(count) is int and count <= MOST_LAYERS for count in listed):
            raise ValueError(f"layers is {layers!r}, not at most {MOST_LAYERS}")


def _settings(known: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "INPUT.INTERPOLATION": known.get("interpolation"),
        "INPUT.RESIZE_MODE": known.get("resize_mode"),
        "INPUT.PIXEL_MEAN": list(known.get("mean") or ()),
        "INPUT.PIXEL_STD": list(known.get("std") or ()),
    }
    return {key: value or CLIPS[key] for key, value in settings.items()}
