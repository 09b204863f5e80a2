"""Load a CLIP model by CoOp's names, by open_clip's names, or from a file of weights."""

from __future__ import annotations

import hashlib
import logging
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import open_clip
import torch
from open_clip.convert import convert_state_dict
from open_clip.factory import _find_checkpoint_in_dir
from open_clip.model import convert_to_custom_text_state_dict
from open_clip.pretrained import (
    download_pretrained,
    download_pretrained_from_hf,
    get_pretrained_cfg,
)
from safetensors.torch import load_file
from torch import Tensor

from coop_cmp.clip.torchscript import is_torchscript, read_torchscript
from coop_cmp.clip.tower import TextTower
from coop_cmp.config.defaults import OPENAI_NAMES
from coop_cmp.config.preprocessing import SCHEMES, preprocessing, read_description
from coop_cmp.errors import UserError, closest, first_line
from coop_cmp.files import check_stored

Precision = Literal["fp32", "amp", "fp16"]
Tokenizer = Callable[[list[str]], Tensor]

# Entries of OpenAI's archives that describe the model and are not weights.
NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size")
SMALL = 5_000_000  # parameters

_bundled_weights: dict[str, Path] = {}


@dataclass(frozen=True)
class LoadedCLIP:
    """A CLIP model in eval mode with frozen weights, and what belongs to it."""

    model: Any  # one of open_clip's classes
    tokenizer: Tokenizer
    name: str
    weights: str
    digest: str  # SHA-256 of the file of weights
    image_size: tuple[int, int]

    @cached_property
    def text(self) -> TextTower:
        """Where the parts of the text tower are."""
        return TextTower(self.model)


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
        name: ``ViT-B/16`` and the like (OpenAI's architectures), any open_clip model name,
            ``hf-hub:<repository>`` or ``local-dir:<folder>``.
        weights: An open_clip tag, or the path of an OpenAI archive (.pt), a safetensors file or a
            saved state dict. Empty: the weights bundled with the model, else ``openai``, or the
            model's only tag.
        precision: ``fp16`` stores the weights in half precision; ``fp32`` and ``amp`` in single.

    Raises:
        UserError: Unknown name or tag, missing or unreadable file, weights of another model,
            weights that cannot be downloaded, or a package or a text tower that is missing.
    """
    key = OPENAI_NAMES.get(name, name)
    model_config(name)  # refuses an unknown name
    tokenizer = _tokenizer(name, key)
    stored, tag = _weights_of(key, weights), {}
    if name.startswith(SCHEMES):
        path = _existing(name, key, weights) if weights else _weights_in(name)
    else:
        tag = get_pretrained_cfg(key, stored)
        path = _download(name, stored, tag) if tag else _existing(name, key, stored)
    model = build(
        name,
        half=precision == "fp16",
        force_quick_gelu=bool(tag.get("quick_gelu")) if tag else name in OPENAI_NAMES,
    )
    _load_weights(name, model, read_state_dict(path), path)
    model.eval().requires_grad_(False)
    if getattr(model.visual, "output_tokens", False):
        model.visual.output_tokens = False  # CoCa's: the feature alone
    size = model.visual.image_size
    return LoadedCLIP(
        model=model,
        tokenizer=tokenizer,
        name=name,
        weights=stored if tag else path.name,
        digest=file_digest(path),
        image_size=(size, size) if isinstance(size, int) else tuple(size),
    )


def model_config(name: str) -> dict[str, Any]:
    """Return open_clip's description of a model.

    Raises:
        UserError: There is none.
    """
    if name.startswith(SCHEMES):
        return read_description(name)["model_cfg"]
    config = open_clip.get_model_config(OPENAI_NAMES.get(name, name))
    if config is None:
        known = [*OPENAI_NAMES, *open_clip.list_models()]
        raise UserError(f'unknown backbone "{name}" (MODEL.BACKBONE.NAME){closest(name, known)}')
    return config


def build(name: str, half: bool = False, **arguments: Any) -> Any:
    """Build a model with random weights; what it lacks for that is named.

    open_clip's ``fp16`` leaves out parts of text towers that it does not know, unless the image
    tower is timm's; such a model is converted whole. Scale and bias of the logits stay in single
    precision.
    """
    config = model_config(name)
    apart = config.get("custom_text") or "hf_model_name" in config.get("text_cfg", {})
    whole = apart and "timm_model_name" not in config["vision_cfg"]
    precision = ("pure_fp16" if whole else "fp16") if half else "fp32"
    try:
        with _quiet():  # open_clip warns that the model is still random
            model = open_clip.create_model(
                OPENAI_NAMES.get(name, name),
                precision=precision,
                load_weights=False,
                pretrained_text=False,
                **arguments,
            )
    except Exception as error:  # of a description, any key or value may be wrong
        raise UserError(f"{name} cannot be built: {first_line(error)}") from error
    for value in (model.logit_scale, getattr(model, "logit_bias", None)):
        if value is not None:
            value.data = value.data.float()
    return model


def _tokenizer(name: str, key: str) -> Tokenizer:
    try:
        with _quiet():
            return open_clip.get_tokenizer(key)
    except ImportError as error:
        raise UserError(
            f"{name} needs the package transformers: pip install 'coop-cmp[transformers]'"
        ) from error
    except Exception as error:  # network libraries raise many kinds
        raise UserError(
            f"the tokenizer of {name} is not on this machine and could not be downloaded "
            f"({first_line(error)})"
        ) from error


def _weights_of(key: str, weights: str) -> str:
    """Return the tag or the file that is meant; of several tags, the user must name one."""
    if weights or key in _bundled_weights:
        return weights or str(_bundled_weights[key])
    tags = open_clip.list_pretrained_tags_by_model(key)
    return tags[0] if len(tags) == 1 else "openai"


def _weights_in(name: str) -> Path:
    """Return the file of weights of a folder or a repository."""
    scheme, _, place = name.partition(":")
    try:
        with _quiet():
            if scheme == "hf-hub":
                return Path(download_pretrained_from_hf(place))
            found = _find_checkpoint_in_dir(Path(place))
    except Exception as error:  # network libraries raise many kinds
        raise UserError(f"{name} holds no weights: {first_line(error)}") from error
    if found is None:
        raise UserError(f"{name} holds no weights, such as open_clip_model.safetensors")
    return Path(found)


def is_small(name: str) -> bool:
    """Return whether the blocks of both towers, if plain transformers, have few parameters."""
    config = open_clip.get_model_config(OPENAI_NAMES.get(name, name)) or {}
    towers = [config.get(part, {}) for part in ("vision_cfg", "text_cfg")]
    if not all(isinstance(tower.get("layers"), int) and "width" in tower for tower in towers):
        return False
    return sum(12 * tower["layers"] * tower["width"] ** 2 for tower in towers) < SMALL


def check_preprocessing(node: Any, name: str, weights: str) -> list[str]:
    """Say where ``cfg.INPUT`` differs from what a model's weights were trained with."""
    lines = []
    for key, right in preprocessing(name, weights).items():
        given = node[key.removeprefix("INPUT.")]
        same = given == right
        if isinstance(right, list):
            same = max(abs(a - b) for a, b in zip(given, right, strict=True)) < 1e-3
        if not same:
            lines.append(
                f'Note: {key} is {given}, but the weights "{weights}" of {name} were trained with '
                f"{right}"
            )
    return lines


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read weights from safetensors, a state dict or a TorchScript archive, safely."""
    path = Path(path)
    state: Any
    try:
        state = load_file(path) if path.suffix == ".safetensors" else _torch_state_dict(path)
    except Exception as error:  # every reader has exceptions of its own for a broken file
        raise UserError(
            f"cannot read weights from {path}: {first_line(error)}. Expected a safetensors "
            "file, a saved state dict or an OpenAI archive; fetch the file again if it is "
            "incomplete"
        ) from error
    if isinstance(state, dict):
        state = state.get("state_dict", state)
    entries = state.items() if isinstance(state, dict) else ()
    if not entries or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in entries):
        raise UserError(f"{path} holds no state dict (a mapping of names to tensors)")
    for name, value in entries:
        if value.is_meta or value.is_quantized or value.layout is not torch.strided:
            raise UserError(f"cannot read weights from {path}: {name} holds no plain numbers")
    weights = {name.removeprefix("module."): value for name, value in entries}
    if len(weights) < len(entries):
        raise UserError(f'{path} holds weights twice, with and without "module." before their name')
    return {name: value for name, value in weights.items() if name not in NOT_WEIGHTS}


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
    check_stored(path)
    try:
        with _quiet():
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # whose text advises to load it nevertheless
        raise ValueError("it holds more than tensors, or is no such file") from error


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


def _load_weights(name: str, model: Any, state: dict[str, Tensor], path: Path) -> None:
    wanted = model.state_dict()
    if (rows := state.pop("token_embedding.rows", None)) is not None:
        table = wanted.get("token_embedding.weight")
        trained = state.get("token_embedding.weight")
        if table is None or trained is None or not _are_rows(rows, trained, table):
            raise UserError(f"cannot read weights from {path}: token_embedding.rows are not rows")
        state["token_embedding.weight"] = _spread_rows(trained, rows, len(table))
    state = _converted(model, state)
    problems = [f"{key} is missing" for key in wanted if key not in state]
    problems += [f"{key} is not part of the model" for key in state if key not in wanted]
    for key, value in wanted.items():
        found = state.get(key, value)
        if found.shape != value.shape:
            problems.append(f"{key} is {list(found.shape)} where the model has {list(value.shape)}")
        elif value.is_floating_point() and not found.is_floating_point():
            problems.append(f"{key} holds {found.dtype} where the model has {value.dtype}")
        elif value.is_floating_point() and not found.float().isfinite().all():
            problems.append(f"{key} holds numbers that are not finite")
    if problems:
        raise UserError(
            f"the weights in {path} are not those of {name}: {problems[0]}"
            + (f" (and {len(problems) - 1} more differences)" if len(problems) > 1 else "")
            + ". Set MODEL.BACKBONE.NAME to the architecture they were made for"
        )
    model.load_state_dict(state)


def _converted(model: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under the names of open_clip's class, as open_clip itself reads them."""
    state = dict(convert_state_dict(model, state))
    if "positional_embedding" in state and not hasattr(model, "positional_embedding"):
        state = convert_to_custom_text_state_dict(state)
    for key in ("logit_scale", "logit_bias"):
        own = getattr(model, key, None)
        if own is not None and key in state and state[key].numel() == 1:
            state[key] = state[key].reshape(own.shape)
    state.pop("text.transformer.embeddings.position_ids", None)
    return state


def _are_rows(rows: Tensor, trained: Tensor, table: Tensor) -> bool:
    """Whether rows [R] are different rows of a table, and there are vectors [R, d] for them."""
    if rows.is_floating_point() or rows.dtype == torch.bool or rows.dim() != 1:
        return False
    few = 0 < len(rows) <= len(table)  # a file of a few bytes may hold endless copies of one number
    fits = trained.shape == (len(rows), table.shape[1]) and trained.is_floating_point()
    inside = few and fits and int(rows.min()) >= 0 and int(rows.max()) < len(table)
    return inside and len(rows.unique()) == len(rows)


def _spread_rows(trained: Tensor, rows: Tensor, vocabulary: int) -> Tensor:
    """Token table [vocabulary, d] from its trained rows.

    The other rows are drawn from a fixed seed with the mean and deviation of the trained rows in
    each dimension, so that words which no training text held still differ from one another.
    """
    deviation, mean = torch.std_mean(trained.float(), 0, correction=0)
    drawn = torch.randn(vocabulary, trained.shape[1], generator=torch.Generator().manual_seed(0))
    table = (mean + deviation * drawn).to(trained.dtype)
    table[rows.long()] = trained
    return table
