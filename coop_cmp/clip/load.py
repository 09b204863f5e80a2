"""Load a CLIP model by CoOp's names, by open_clip's names, or from a file of weights."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import open_clip
import torch
from open_clip.pretrained import download_pretrained, get_pretrained_cfg
from safetensors.torch import load_file
from torch import Tensor, nn

from coop_cmp.clip.torchscript import is_torchscript, read_torchscript
from coop_cmp.config.defaults import OPENAI_NAMES
from coop_cmp.errors import UserError, closest

Precision = Literal["fp32", "amp", "fp16"]
Tokenizer = Callable[[list[str]], Tensor]

# Entries of OpenAI's archives that describe the model and are not weights.
NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size")
SMALL = 5_000_000  # parameters

_bundled_weights: dict[str, Path] = {}


@dataclass(frozen=True)
class LoadedCLIP:
    """A CLIP model in eval mode with frozen weights, and what belongs to it."""

    model: Any  # open_clip's CLIP
    tokenizer: Tokenizer
    name: str
    weights: str
    digest: str  # SHA-256 of the file of weights
    image_size: tuple[int, int]

    @property
    def embed_dim(self) -> int:
        """Numbers in a feature; of the text tower, since timm's image towers do not say."""
        projection = self.model.text_projection
        return projection.out_features if isinstance(projection, nn.Linear) else len(projection.T)


def add_models(folder: str | Path) -> None:
    """Make the model configs (``<name>.json``) of a folder known by name.

    Weights that lie beside a config as ``<name>.safetensors`` are that model's default.
    """
    for config in sorted(Path(folder).glob("*.json")):
        open_clip.add_model_config(config)
        weights = config.with_suffix(".safetensors")
        if weights.is_file():
            _bundled_weights[config.stem] = weights


def load_clip(name: str, weights: str = "", precision: Precision = "fp32") -> LoadedCLIP:
    """Build a CLIP model and load its weights.

    Args:
        name: ``ViT-B/16`` and the like (OpenAI's architectures), or any open_clip model name.
        weights: An open_clip tag, or the path of an OpenAI archive (.pt), a safetensors file or a
            saved state dict. Empty: the weights bundled with the model, else ``openai``.
        precision: ``fp16`` stores the weights in half precision; ``fp32`` and ``amp`` in single.

    Raises:
        UserError: Unknown name or tag, missing or unreadable file, weights of another model, or
            weights that cannot be downloaded.
    """
    if precision not in ("fp32", "amp", "fp16"):
        raise UserError(f'precision must be "fp32", "amp" or "fp16", got "{precision}"')
    key = OPENAI_NAMES.get(name, name)
    if key not in open_clip.list_models():
        known = [*OPENAI_NAMES, *open_clip.list_models()]
        raise UserError(f'unknown backbone "{name}" (MODEL.BACKBONE.NAME){closest(name, known)}')
    source = weights or str(_bundled_weights.get(key, "openai"))
    tag = get_pretrained_cfg(key, source)
    path = _download(name, source, tag) if tag else _existing(name, key, source)

    with _quiet():  # open_clip warns that the model is still random
        model = open_clip.create_model(
            key,
            precision="fp16" if precision == "fp16" else "fp32",
            force_quick_gelu=bool(tag.get("quick_gelu")) if tag else name in OPENAI_NAMES,
            pretrained_text=False,
        )
    _check_text_tower(name, model)
    _load_weights(name, model, read_state_dict(path), path)
    model.eval().requires_grad_(False)
    size = model.visual.image_size
    return LoadedCLIP(
        model=model,
        tokenizer=open_clip.get_tokenizer(key),
        name=name,
        weights=source if tag else path.name,
        digest=file_digest(path),
        image_size=(size, size) if isinstance(size, int) else tuple(size),
    )


def is_small(name: str) -> bool:
    """Return whether the blocks of both towers have few parameters, by the model's config.

    An image tower that is no plain vision transformer counts as large.
    """
    config = open_clip.get_model_config(OPENAI_NAMES.get(name, name)) or {}
    towers = [config.get(part, {}) for part in ("vision_cfg", "text_cfg")]
    if not all(isinstance(tower.get("layers"), int) and "width" in tower for tower in towers):
        return False
    return sum(12 * tower["layers"] * tower["width"] ** 2 for tower in towers) < SMALL


def check_preprocessing(node: Any, name: str, tag: str) -> None:
    """Refuse images that are not prepared as the pre-trained weights require.

    Args:
        node: ``cfg.INPUT``
        name: The model's name.
        tag: The tag of its weights; a file has none, and is not checked.
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


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read weights from safetensors, a state dict or a TorchScript archive, safely."""
    path = Path(path)
    state: Any
    try:
        state = load_file(path) if path.suffix == ".safetensors" else _torch_state_dict(path)
    except Exception as error:  # every reader has exceptions of its own for a broken file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"cannot read weights from {path}: {reason}. Expected a safetensors file, a saved "
            "state dict or an OpenAI archive; fetch the file again if it is incomplete"
        ) from error
    if isinstance(state, dict):
        state = state.get("state_dict", state)
    tensors = isinstance(state, dict) and [isinstance(value, Tensor) for value in state.values()]
    if not tensors or not all(tensors):
        raise UserError(f"{path} holds no state dict (a mapping of names to tensors)")
    return {
        name.removeprefix("module."): value
        for name, value in state.items()
        if name not in NOT_WEIGHTS
    }


def file_digest(path: str | Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _torch_state_dict(path: Path) -> dict:
    if is_torchscript(path):
        return read_torchscript(path)
    with _quiet():
        return torch.load(path, map_location="cpu", weights_only=True)


def _download(name: str, tag_name: str, tag: dict) -> Path:
    try:
        # The URL first: its cache (~/.cache/clip) is the one that CoOp-family code fills.
        with _quiet():
            return Path(download_pretrained(tag, prefer_hf_hub=not tag.get("url")))
    except Exception as error:  # network libraries raise many kinds
        where = tag.get("url") or tag.get("hf_hub")
        raise UserError(
            f'the weights "{tag_name}" of {name} are not on this machine and could not be '
            f"downloaded ({type(error).__name__}). Fetch {where} where there is a network and pass "
            "the file as MODEL.BACKBONE.WEIGHTS"
        ) from error


def _existing(name: str, key: str, source: str) -> Path:
    path = Path(source).expanduser()
    if path.is_file():
        return path
    tags = open_clip.list_pretrained_tags_by_model(key)
    raise UserError(
        f'weights "{source}" (MODEL.BACKBONE.WEIGHTS) are neither a file nor a tag of {name}'
        f"{closest(source, tags)}; its tags: {', '.join(tags) or 'none'}"
    )


def _check_text_tower(name: str, model: Any) -> None:
    causal = hasattr(model, "token_embedding") and getattr(model, "attn_mask", None) is not None
    if not causal or getattr(model, "text_pool_type", "argmax") != "argmax":
        raise UserError(
            f"{name} has no causal CLIP text transformer, which prompt learning needs; choose a "
            "plain CLIP model such as ViT-B/16 or ViT-B-16-quickgelu"
        )


def _load_weights(name: str, model: Any, state: dict[str, Tensor], path: Path) -> None:
    rows = state.pop("token_embedding.rows", None)
    wanted = model.state_dict()
    if rows is not None:
        state["token_embedding.weight"] = _spread_rows(
            state["token_embedding.weight"], rows, len(wanted["token_embedding.weight"])
        )
    problems = [f"{key} is missing" for key in wanted if key not in state]
    problems += [f"{key} is not part of the model" for key in state if key not in wanted]
    problems += [
        f"{key} is {list(state[key].shape)} where the model has {list(value.shape)}"
        for key, value in wanted.items()
        if key in state and state[key].shape != value.shape
    ]
    if problems:
        raise UserError(
            f"the weights in {path} are not those of {name}: {problems[0]}"
            + (f" (and {len(problems) - 1} more differences)" if len(problems) > 1 else "")
            + ". Set MODEL.BACKBONE.NAME to the architecture they were made for"
        )
    model.load_state_dict(state)


def _spread_rows(trained: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    """Token table [vocabulary, d] from its trained rows; the others get their mean."""
    table = trained.mean(0, keepdim=True).repeat(vocabulary, 1)
    table[rows.long()] = trained
    return table
