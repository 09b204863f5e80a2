"""Fake weights, data and GPU, with which a checkout's trainers run anywhere."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
from PIL import Image
from torch import Tensor, nn

CLASSES = ("cat", "great grey owl")
SIZE, PATCH = 32, 16
# The widths are those of ViT-B/16, which checkouts write into their code; the depths are smaller.
EMBED, VISION_WIDTH, VISION_LAYERS, TEXT_WIDTH, TEXT_LAYERS = 512, 768, 2, 512, 9


@contextlib.contextmanager
def faked(text_layers: int = TEXT_LAYERS) -> Iterator[Path]:
    """Enter a temporary directory where weights are random and all runs in fp32 on the CPU.

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
                stack.enter_context(mock.patch.object(module, "_download", download))
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


def random_weights(text_layers: int = TEXT_LAYERS) -> dict[str, Tensor]:
    """Draw the weights of a small ViT, named as in OpenAI's package."""
    vision = CLIPVisionCfg(VISION_LAYERS, VISION_WIDTH, patch_size=PATCH, image_size=SIZE)
    text = CLIPTextCfg(width=TEXT_WIDTH, heads=8, layers=text_layers)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return CLIP(EMBED, vision, text).state_dict()


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
