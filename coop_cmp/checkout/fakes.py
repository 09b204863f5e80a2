"""Fake arguments, weights, data, downloads and GPU: with them a script runs anywhere."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import open_clip
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils import model_zoo
from torch.utils.weak import WeakTensorKeyDictionary

from coop_cmp.checkout.plugin import thawed, wrap
from coop_cmp.checkout.runner import is_own
from coop_cmp.losses.names import TERMS, WEIGHT, split_trainer

if TYPE_CHECKING:
    from coop_cmp.checkout.check import Trial

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


def fake_downloads(folder: Path) -> None:
    """Give every imported module that downloads CLIP's weights, or a backbone's, random ones."""

    def download(source: str, *_: Any, **__: Any) -> str:  # a URL or a name such as ViT-B/16
        name = source.rpartition("/")[2] if "://" in source else source.replace("/", "-")
        file = folder / f"{name.removesuffix('.pt').replace('@', '-')}.pt"
        if not file.exists():
            state = random_weights(file.stem)
            torch.save({key: value.half() for key, value in state.items()}, file)
        return str(file)

    for name, module in list(sys.modules.items()):
        if name == "coop_cmp.clip.load" or {"_download", "_MODELS"} <= {*dir(module)}:
            vars(module)["_download"] = download
    # The backbones of Dassl load what there is.
    vars(model_zoo)["load_url"] = lambda *_, **__: {}


def random_weights(name: str) -> dict[str, Tensor]:
    """Draw the weights of one of OpenAI's models, named and shaped as in OpenAI's package.

    Args:
        name: Such as ``ViT-B-16``.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return open_clip.CLIP(**open_clip.get_model_config(name)).state_dict()


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


def stand_at_the_edges(trial: Trial) -> None:
    """Stand at the edges of a script: its arguments, the weights, the data, the trainer built."""
    import dassl.engine
    import dassl.engine.build

    folder, own = trial.folder, is_own(trial.script)
    data = Path("configs", "datasets", "digits.yaml" if own else "oxford_pets.yaml")
    fill = {"dataset_config_file": str(data) if data.exists() else "", "seed": "1"}
    fill["backbone"] = "GlyphCLIP" * own
    fill["config_file"] = [*settings_files(split_trainer(trial.trainer)[0]), ""][trial.file]
    force = {"output_dir": str(folder / "output"), "no_feature_store": True}

    def parsing(parse: Callable[..., Any]) -> Callable[..., Any]:
        def parse_args(parser: Any, *args: Any) -> Any:
            found = parse(parser, *args)
            for key, value in fill.items():
                if value and getattr(found, key, value) in ("", None, -1):
                    setattr(found, key, int(value) if key == "seed" else value)
                    trial.filled[f"--{key.replace('_', '-')}"] = value
            vars(found).update({key: value for key, value in force.items() if key in found})
            return found

        return parse_args

    def building(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def build_trainer(cfg: Any) -> Any:
            with trial.at("building"):
                with thawed(cfg):
                    cfg.DATASET.ROOT = str(folder / "data")
                    cfg.DATASET.NAME = cfg.DATASET.NAME or "OxfordPets"
                    cfg.OPTIM.MAX_EPOCH, cfg.DATALOADER.NUM_WORKERS = 1, 0
                    for term in TERMS.values():
                        if not term.replaces and term.node in cfg.TRAINER:
                            cfg.TRAINER[term.node][WEIGHT] = trial.weight
                fake_dataset(cfg.DATASET.NAME, folder / "data")
                fake_downloads(folder)
                trainer = build(cfg)
            trial.stage = "training"
            train, test = trainer.train, trainer.test

            def trained(*args: Any) -> Any:
                with trial.at("training"):
                    result = train(*args)
                trial.learned = trial.learned or _digest(trainer)  # some never test
                return result

            def tested(*args: Any, **named: Any) -> Any:
                trial.learned = _digest(trainer)
                with trial.at("the test"):
                    return test(*args, **named)

            trainer.train, trainer.test = trained, tested
            return trainer

        return build_trainer

    wrap(argparse.ArgumentParser, "parse_args", parsing)
    for module in (dassl.engine, dassl.engine.build):
        wrap(module, "build_trainer", building)


def _digest(trainer: Any) -> str:
    """Return a digest of all weights of a trainer's models that train."""
    digest = hashlib.sha256()
    for name, model in trainer._models.items():
        for key, weight in model.named_parameters():
            if weight.requires_grad:
                digest.update(f"{name}.{key}".encode())
                digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest() if trainer._models else ""


def settings_files(trainer: str, home: Path = Path()) -> list[str]:
    """Find a trainer's settings files below ``configs``: for GlyphCLIP, for ViT-B/16, others."""

    def is_its(name: str) -> bool:
        return name.lower().replace("_", "") == trainer.lower().replace("_", "")

    files = [f.relative_to(home) for f in home.glob("configs/**/*.yaml")]
    files = [f for f in files if is_its(f.parent.name) or is_its(f.stem)]
    files.sort(key=lambda f: ("glyph" not in f.name, "vit_b16" not in f.name, f))
    return [*map(str, files)]


def _is_device(value: Any) -> bool:
    return isinstance(value, str | torch.device)
