"""Defaults of a run that names no config file: any method, data set and backbone."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from coop_cmp.config.registry import METHODS, Method
from coop_cmp.errors import UserError, closest

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
# CoOp's few-shot setting, which most methods of its family took over.
FEW_SHOT: dict[str, Any] = {
    "DATALOADER.TRAIN_X.BATCH_SIZE": 32,
    "DATALOADER.TEST.BATCH_SIZE": 100,
    "INPUT.INTERPOLATION": "bicubic",
    "INPUT.PIXEL_MEAN": [0.48145466, 0.4578275, 0.40821073],
    "INPUT.PIXEL_STD": [0.26862954, 0.26130258, 0.27577711],
    "INPUT.TRANSFORMS": ("random_resized_crop", "random_flip", "normalize"),
    "OPTIM.NAME": "sgd",
    "OPTIM.LR": 0.002,
    "OPTIM.LR_SCHEDULER": "cosine",
    "OPTIM.WARMUP_EPOCH": 1,
    "OPTIM.WARMUP_TYPE": "constant",
    "OPTIM.WARMUP_CONS_LR": 1e-5,
    "OPTIM.MAX_EPOCH": 50,
}


def method_of(trainer: str) -> Method | None:
    """Return what was declared for a trainer; for a variant such as CoOp_CMP, its baseline's."""
    return METHODS.get(trainer) or METHODS.get(trainer.rpartition("_")[0])


def run_defaults(trainer: str, backbone: str, models: Path) -> dict[str, Any]:
    """Return the settings of a method that has no config file, on any backbone.

    Args:
        trainer: The method's name.
        backbone: As MODEL.BACKBONE.NAME takes it.
        models: The folder of bundled models.
    """
    method = method_of(trainer)
    size = image_size(backbone, models)
    own = method.defaults if method else {}
    return {**FEW_SHOT, **own, **({"INPUT.SIZE": size} if size else {})}


def image_size(backbone: str, models: Path) -> tuple[int, int] | None:
    """Return height and width of the model's images; None if open_clip has no such model."""
    name = OPENAI_NAMES.get(backbone, backbone)
    for folder in _config_folders(models):
        path = folder / f"{name}.json"
        if path.is_file():
            try:
                size = json.loads(path.read_text(encoding="utf-8"))["vision_cfg"]["image_size"]
                return (size, size) if isinstance(size, int) else tuple(size)
            except (ValueError, LookupError, TypeError) as error:
                raise UserError(f"{path}: not a model config ({error!r})") from error
    return None


def check_backbone(backbone: str, models: Path) -> None:
    """Refuse a name that no model config has."""
    if image_size(backbone, models) is None:
        files = (file for folder in _config_folders(models) for file in folder.glob("*.json"))
        known = [*OPENAI_NAMES, *(file.stem for file in files)]
        raise UserError(f'unknown backbone "{backbone}"{closest(backbone, known)}')


def _config_folders(models: Path) -> list[Path]:
    """Return where model configs are: the bundled ones, then those of open_clip."""
    package = importlib.util.find_spec("open_clip")  # not imported: that would load torch
    installed = getattr(package, "submodule_search_locations", None) or ()
    return [models, *(Path(place, "model_configs") for place in installed)]
