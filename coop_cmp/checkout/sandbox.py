"""A place where a checkout's trainers run without weights, data or GPU."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

CLASSES = ("cat", "great grey owl")
SIZE, PATCH = 32, 16
# The widths are those of ViT-B/16, which checkouts write into their code; the depths are smaller.
LARGE = 2**18  # entries; prompts that a checkout adds to CLIP have fewer
EMBED, VISION_WIDTH, VISION_LAYERS, TEXT_WIDTH, TEXT_LAYERS = 512, 768, 2, 512, 9


@contextlib.contextmanager
def sandbox(text_layers: int = TEXT_LAYERS) -> Iterator[Path]:
    """A temporary working directory in which weights are random and all runs in fp32 on the CPU.

    Without a GPU, ``.cuda()``, ``.to("cuda")`` and ``.half()`` do nothing. Every module that
    downloads weights as OpenAI's package does gets a file of random ones.
    """
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        weights = Path(folder, "weights.pt")

        def download(*_: Any, **__: Any) -> str:
            if not weights.exists():
                state = random_weights(text_layers)
                torch.save({key: value.half() for key, value in state.items()}, weights)
            return str(weights)

        for module in list(sys.modules.values()):
            if {"_download", "_MODELS"} <= vars(module).keys():
                patch = partial(mock.patch.object, module)
                stack.enter_context(patch("_download", download))
                if hasattr(module, "build_model"):
                    build = _without_draws(module.build_model)
                    stack.enter_context(patch("build_model", build))
        if not torch.cuda.is_available():
            for kind in (Tensor, nn.Module):
                for name in ("cuda", "half"):  # half precision takes minutes without a GPU
                    stack.enter_context(mock.patch.object(kind, name, _itself))
                stack.enter_context(mock.patch.object(kind, "to", _staying(kind.to)))
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(home)


def _itself(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _staying(to: Callable[..., Any]) -> Callable[..., Any]:
    def place(where: Any) -> Any:
        named = isinstance(where, str | torch.device)
        return "cpu" if named and str(where).startswith("cuda") else where

    def without_gpu(value: Any, *args: Any, **named: Any) -> Any:
        return to(value, *map(place, args), **{key: place(v) for key, v in named.items()})

    return without_gpu


def _without_draws(build: Callable[..., Any]) -> Callable[..., Any]:
    """Build CLIP without drawing the large weights, which those of the file replace anyway."""

    def small(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, *args, **named: x if x.numel() >= LARGE else fill(x, *args, **named)

    def build_model(*args: Any, **named: Any) -> Any:
        normal, uniform = small(Tensor.normal_), small(Tensor.uniform_)
        with mock.patch.multiple(Tensor, normal_=normal, uniform_=uniform):
            return build(*args, **named)

    return build_model


def random_weights(text_layers: int = TEXT_LAYERS) -> dict[str, Tensor]:
    """The weights of a small ViT in the layout of OpenAI's package."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * shape[-1] ** -0.5

    def tower(prefix: str, width: int, layers: int) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = {}
        for i in range(layers):
            for name, (rows, columns) in {
                "attn.in_proj_": (3 * width, width),
                "attn.out_proj.": (width, width),
                "mlp.c_fc.": (4 * width, width),
                "mlp.c_proj.": (width, 4 * width),
            }.items():
                block = f"{prefix}resblocks.{i}.{name}"
                weights |= {
                    f"{block}weight": normal(rows, columns),
                    f"{block}bias": torch.zeros(rows),
                }
            for name in ("ln_1", "ln_2"):
                weights |= norm(f"{prefix}resblocks.{i}.{name}", width)
        return weights

    def norm(name: str, width: int) -> dict[str, Tensor]:
        return {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}

    return {
        "visual.conv1.weight": normal(VISION_WIDTH, 3, PATCH, PATCH),
        "visual.class_embedding": normal(VISION_WIDTH),
        "visual.positional_embedding": normal((SIZE // PATCH) ** 2 + 1, VISION_WIDTH),
        "visual.proj": normal(VISION_WIDTH, EMBED),
        **norm("visual.ln_pre", VISION_WIDTH),
        **norm("visual.ln_post", VISION_WIDTH),
        **tower("visual.transformer.", VISION_WIDTH, VISION_LAYERS),
        "token_embedding.weight": normal(49408, TEXT_WIDTH),
        "positional_embedding": normal(77, TEXT_WIDTH),
        "text_projection": normal(TEXT_WIDTH, EMBED),
        "logit_scale": torch.tensor(2.0),
        **norm("ln_final", TEXT_WIDTH),
        **tower("transformer.", TEXT_WIDTH, text_layers),
    }


def noise_dataset(folder: Path, name: str, classes: Sequence[str] = CLASSES) -> None:
    """Register a picture of noise per class under the name of a data set, in its place.

    The tests have each four times: some checkouts look for neighbours of an image.
    """
    from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum

    items = []
    rng = np.random.default_rng(0)
    for label, classname in enumerate(classes):
        file = folder / f"{label}.png"
        Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(file)
        items.append(Datum(str(file), label, 0, classname))

    class Noise(DatasetBase):
        dataset_dir = image_dir = str(folder)

        def __init__(self, cfg: Any) -> None:
            super().__init__(train_x=items, val=4 * items, test=4 * items)

    Noise.__name__ = name
    DATASET_REGISTRY.register(Noise, force=True)
