"""Fake weights, data, downloads and GPU, with which a checkout's own script runs anywhere."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import open_clip
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils import model_zoo
from torch.utils.weak import WeakTensorKeyDictionary

# Data sets whose files are written, so that the checkout's own class reads them: folder, folder of
# the images, and six of the classes, for which checkouts have descriptions.
PETS = "abyssinian beagle bengal birman bombay boxer"
THINGS = "face leopard motorbike accordion airplane anchor"
WRITTEN = {
    "OxfordPets": ("oxford_pets", "images", PETS),
    "Caltech101": ("caltech-101", "101_ObjectCategories", THINGS),
}
REPLACED = "coop_cmp: images of noise replace the data set"
SIZE = 256  # pixels of an image, from which 224 are cropped


@contextlib.contextmanager
def without_gpu() -> Iterator[None]:
    """Let ``.cuda()``, ``.to("cuda")`` and ``.half()`` do little where there is no GPU.

    A tensor that is sent somewhere is copied once, as it would be on its way to a GPU: RPO writes
    into the copy in every step.
    """
    there = WeakTensorKeyDictionary()  # what has arrived

    def arrive(value: Any) -> Any:
        if isinstance(value, nn.Module):  # which keeps its tensors
            there.update(dict.fromkeys((*value.parameters(), *value.buffers())))
            return value
        value = value if value in there else value.clone()
        there[value] = None
        return value

    def sending(to: Callable[..., Any]) -> Callable[..., Any]:
        def send(value: Any, *args: Any, **named: Any) -> Any:
            rest = [a for a in args if not _is_device(a)]
            more = {key: v for key, v in named.items() if not _is_device(v)}
            sent = len(rest) + len(more) < len(args) + len(named)
            value = to(value, *rest, **more) if rest or more else value
            return arrive(value) if sent else value

        return send

    with contextlib.ExitStack() as stack:
        if not torch.cuda.is_available():
            stack.enter_context(mock.patch("torch.cuda.device_count", return_value=1))
            for kind in (Tensor, nn.Module):
                stand_ins: dict[str, Callable[..., Any]] = {
                    "cuda": lambda value, *_, **__: arrive(value),
                    "half": lambda value: value,  # half precision takes minutes without a GPU
                    "to": sending(kind.to),
                }
                for name, stand_in in stand_ins.items():
                    stack.enter_context(mock.patch.object(kind, name, stand_in))
        yield


def fake_downloads(folder: Path, image_layers: int | None = None) -> None:
    """Give every imported module that downloads CLIP's weights, or a backbone's, random ones."""

    def download(source: str, *_: Any, **__: Any) -> str:  # a URL or a name such as ViT-B/16
        name = source.rpartition("/")[2] if "://" in source else source.replace("/", "-")
        file = folder / f"{name.removesuffix('.pt').replace('@', '-')}.pt"
        if not file.exists():
            state = random_weights(file.stem, image_layers)
            torch.save({key: value.half() for key, value in state.items()}, file)
        return str(file)

    for name, module in list(sys.modules.items()):
        if name == "coop_cmp.clip.load" or {"_download", "_MODELS"} <= {*dir(module)}:
            vars(module)["_download"] = download
    # The backbones of Dassl load what there is.
    vars(model_zoo)["load_url"] = lambda *_, **__: {}


def random_weights(name: str, image_layers: int | None = None) -> dict[str, Tensor]:
    """Draw the weights of one of OpenAI's models, named and shaped as in OpenAI's package.

    Args:
        name: Such as ``ViT-B-16``.
        image_layers: Of the image tower, instead of all.
    """
    config = open_clip.get_model_config(name)
    if image_layers is not None:
        config["vision_cfg"]["layers"] = image_layers
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return open_clip.CLIP(**config).state_dict()


def write_data(root: Path, classes: Sequence[str] = ()) -> None:
    """Write images of noise and the split files of the data sets that are `WRITTEN`."""
    rng = np.random.default_rng(0)
    for name, (folder, images, own) in WRITTEN.items():
        items = []
        for label, classname in enumerate(classes or own.split()):
            file = root / folder / images / f"{classname}_{label}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(file)
            items.append((file.name, label, classname))
        splits = {"train": items, "val": items[:4], "test": items[:4]}
        (root / folder / f"split_zhou_{name}.json").write_text(json.dumps(splits))


def fake_dataset(name: str, root: Path) -> None:
    """Let a data set whose files are missing consist of noise; its class keeps all else."""
    from dassl.data.datasets import DATASET_REGISTRY, DatasetBase, Datum

    known = DATASET_REGISTRY.registered_names()
    real: Any = DATASET_REGISTRY.get(name) if name in known else DatasetBase
    files = sorted(root.glob("oxford_pets/images/*"))[:4]

    class Faked(real):
        def __init__(self, cfg: Any) -> None:
            if name in known:
                with contextlib.suppress(OSError, RuntimeError):  # files, downloads
                    return super().__init__(cfg)
            print(f"{REPLACED} {name}")
            items = [Datum(str(f), i // 2, i % 2, f"class {i // 2}") for i, f in enumerate(files)]
            self.dataset_dir = self.image_dir = str(root)
            DatasetBase.__init__(self, train_x=items, train_u=items, val=items, test=items)

    Faked.__name__ = name
    DATASET_REGISTRY.register(Faked, force=True)


def _is_device(value: Any) -> bool:
    return isinstance(value, str | torch.device)
