"""Defaults of a run that names no config file: any method, data set and backbone."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from coop_cmp.config.preprocessing import (
    CLIPS,
    OPENAI_NAMES,
    SCHEMES,
    preprocessing,
    read_description,
)
from coop_cmp.config.registry import METHODS, Method
from coop_cmp.errors import UserError, closest

# CoOp's few-shot setting, which most methods of its family took over.
FEW_SHOT: dict[str, Any] = {
    "DATALOADER.TRAIN_X.BATCH_SIZE": 32,
    "DATALOADER.TEST.BATCH_SIZE": 100,
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


def run_defaults(trainer: str) -> dict[str, Any]:
    """Return the settings of a method that has no config file."""
    method = method_of(trainer)
    return {**FEW_SHOT, **(method.defaults if method else {})}


def image_defaults(backbone: str, weights: str, models: Path) -> dict[str, Any]:
    """Return the settings of images that a backbone and its weights take; none if unknown.

    Args:
        backbone: As MODEL.BACKBONE.NAME takes it.
        weights: As MODEL.BACKBONE.WEIGHTS takes it.
        models: The folder of bundled models.
    """
    size = image_size(backbone, models)
    if size is None:
        return {}
    bundled = (models / f"{backbone}.json").is_file()
    return {**(CLIPS if bundled else preprocessing(backbone, weights)), "INPUT.SIZE": size}


def image_size(backbone: str, models: Path) -> tuple[int, int] | None:
    """Return height and width of the model's images; None if open_clip has no such model."""
    if backbone.startswith(SCHEMES):
        return _pair(read_description(backbone)["model_cfg"]["vision_cfg"].get("image_size", 224))
    name = OPENAI_NAMES.get(backbone, backbone)
    for folder in _config_folders(models):
        path = folder / f"{name}.json"
        if path.is_file():
            try:
                return _pair(
                    json.loads(path.read_text(encoding="utf-8"))["vision_cfg"]["image_size"]
                )
            except (ValueError, LookupError, TypeError) as error:
                raise UserError(f"{path}: not a model config ({error!r})") from error
    return None


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


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
