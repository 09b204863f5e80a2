"""Export a trained model to a file that open_clip alone can use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from dassl.data.transforms import build_transform
from open_clip.pretrained import get_pretrained_cfg
from PIL import Image
from safetensors.torch import save
from torch import Tensor, nn

from coop_cmp.calibrate import Affine, Temperature
from coop_cmp.calibrate.storage import Calibrator
from coop_cmp.clip import load_clip
from coop_cmp.clip.load import model_config
from coop_cmp.config.defaults import OPENAI_NAMES
from coop_cmp.errors import UserError, first_line
from coop_cmp.files import atomic_write, resolved, write_json
from coop_cmp.predict.predictor import Predictor, load
from coop_cmp.predict.trainer import quiet

TOLERANCE = 1e-5


def export(
    run: str | Path, path: str | Path, calibrator: str | Path | Calibrator | None = None
) -> list[Path]:
    """Write a run's classifier as a safetensors file that needs nothing but open_clip.

    It holds ``text_features`` [C, E], ``scale``, and to calibrate logits a ``factor`` (1 / T) and
    an ``offset`` of each class [C], in which the bias of sigmoid scores is; its metadata, each as
    JSON, ``classnames``, ``temperature`` (null for vector scaling), ``scores`` (softmax or
    sigmoid), ``model`` (arguments of ``open_clip.create_model``) and
    ``preprocess`` (arguments of ``open_clip.image_transform``). Weights that cannot be had by name
    are written beside it, in a folder in open_clip's format. An image tower with learned tokens, as
    MaPLe's, becomes a program of torch.export beside it, and ``model`` is its file's name.

    Args:
        run: The run's directory.
        path: The file to write.
        calibrator: What ``coop-cmp calibrate``, with temperature or vector, made of it.

    Returns:
        What was written.

    Raises:
        UserError: The method has no classifier that is the same for all images.
    """
    path = Path(path)
    resolved(path, "the exported file")  # refuses names that its metadata cannot hold
    if path.suffix != ".safetensors":
        raise UserError(f"the exported file must be called *.safetensors, got {path.name}")
    model = load(run, calibrator=calibrator, device="cpu", precision="fp32")
    factor, offset = _calibration(model)
    net = model.trainer.model.eval().requires_grad_(False)
    text, scale = _classifier(net, model.trainer.cfg.TRAINER.NAME)
    if net.logit_bias is not None:
        offset = offset + net.logit_bias.float()
    tower, written = _image_tower(model, path)
    about = {
        "classnames": model.classnames,
        "temperature": getattr(model.calibrator or Temperature(1.0), "value", None),
        "model": tower,
        "preprocess": _preprocessing(model.trainer.cfg),
        "scores": model.trainer.cfg.MODEL.SCORES,
        "trainer": model.trainer.cfg.TRAINER.NAME,
        "weights": model.trainer.weights,
    }
    metadata = {key: json.dumps(value, ensure_ascii=False) for key, value in about.items()}
    with atomic_write(path) as file:
        tensors = {"text_features": text, "scale": scale, "factor": factor, "offset": offset}
        file.write(save(tensors, metadata))
    return [path, *written]


def _calibration(model: Predictor) -> tuple[Tensor, Tensor]:
    """The factors and offsets [C] that calibrate logits, if that is all a calibrator does."""
    found = model.calibrator or Temperature(1.0)
    count = len(model.classnames)
    if isinstance(found, Temperature):
        return torch.full((count,), 1 / found.value), torch.zeros(count)
    if isinstance(found, Affine) and found.weight.ndim == 1:
        return torch.tensor(found.weight).float(), torch.tensor(found.bias).float()
    raise UserError(
        "an exported file can hold a temperature or vector scaling, no other calibrator; use "
        "coop_cmp.load(run, calibrator=...).predict"
    )


def _classifier(net: Any, name: str) -> tuple[Tensor, Tensor]:
    """Text features [C, E] and the scale, if these are all that turns features into logits."""
    with torch.no_grad():
        text, scale = net.classifier(), net.logit_scale.float().exp()
        if text is not None and text.dim() == 2:
            features = F.normalize(torch.randn(4, text.shape[1]), dim=-1)
            bias = 0 if net.logit_bias is None else net.logit_bias.float()
            if close(net.classify(features), scale * features @ text.t() + bias):
                return text.contiguous().clone(), scale.clone()
    raise UserError(
        f"{name} has no fixed classifier: its logits are not products of image features with the "
        "same text features for every image; use coop_cmp.load(run).predict"
    )


def _image_tower(model: Predictor, path: Path) -> tuple[Any, list[Path]]:
    """How to make the image tower again, and what had to be written for that."""
    net, backbone = model.trainer.model, model.trainer.cfg.MODEL.BACKBONE
    name = OPENAI_NAMES.get(backbone.NAME, backbone.NAME)
    pixels = torch.randn(2, 3, *model.trainer.cfg.INPUT.SIZE)
    with torch.no_grad():
        plain = close(net.encode_image(pixels), F.normalize(net.visual(pixels), dim=-1))
    if not plain:
        program = path.with_suffix(".pt2")
        _export_program(net, pixels, program)
        return program.name, [program]
    tag = get_pretrained_cfg(name, model.trainer.weights["name"])
    quick = bool(tag.get("quick_gelu")) if tag else backbone.NAME in OPENAI_NAMES
    if tag and net.frozen_image_tower:
        named = {"model_name": name, "pretrained": model.trainer.weights["name"]}
        return {**named, "force_quick_gelu": quick}, []
    folder = path.with_name(f"{path.stem}_model")
    with quiet():
        clip = load_clip(backbone.NAME, backbone.WEIGHTS).model
    clip.visual.load_state_dict(net.visual.state_dict())
    config = {"quick_gelu": False, **model_config(backbone.NAME)}
    config["quick_gelu"] |= quick
    write_json(folder / "open_clip_config.json", {"model_cfg": config, "preprocess_cfg": {}})
    with atomic_write(folder / "open_clip_model.safetensors") as file:
        file.write(save({k: v.contiguous() for k, v in clip.state_dict().items()}))
    return {"model_name": f"local-dir:{folder}"}, [folder]


class _ImageSide(nn.Module):
    """The part of a model that turns images [B, 3, H, W] into normalised features [B, E]."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor) -> Tensor:
        return self.net.encode_image(image)


def _export_program(net: Any, pixels: Tensor, path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=4096)
    try:
        with torch.no_grad():
            program = torch.export.export(_ImageSide(net), (pixels,), dynamic_shapes=({0: batch},))
            same = close(program.module()(pixels[:1]), net.encode_image(pixels[:1]))
    except Exception as error:  # torch.export has many kinds
        raise UserError(f"torch.export cannot take the image tower: {first_line(error)}") from error
    if not same:
        raise UserError("the exported image tower gives other features than the model")
    with atomic_write(path) as file:
        torch.export.save(program, file)


def _preprocessing(cfg: Any) -> dict[str, Any]:
    """The arguments of open_clip's transform, if it does what the run's test does."""
    node = cfg.INPUT
    arguments = {
        "image_size": list(node.SIZE),
        "mean": list(node.PIXEL_MEAN),
        "std": list(node.PIXEL_STD),
        "interpolation": node.INTERPOLATION,
        "resize_mode": node.RESIZE_MODE,
    }
    picture = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    image = Image.fromarray(picture)
    with quiet():
        wanted = build_transform(cfg, is_train=False)(image)
    known = node.INTERPOLATION in ("bicubic", "bilinear")
    if not known or not close(
        open_clip.image_transform(is_train=False, **arguments)(image), wanted
    ):
        raise UserError("the preprocessing of this run (INPUT) is not one that open_clip has")
    return arguments


def close(first: Tensor, second: Tensor) -> bool:
    """Whether two results are the same but for rounding."""
    return first.shape == second.shape and bool(
        torch.allclose(first, second, atol=TOLERANCE, rtol=TOLERANCE)
    )
