"""Small data sets in the layouts of the real ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from dassl.config import get_cfg_default
from dassl.data.datasets import DATASET_REGISTRY
from PIL import Image
from yacs.config import CfgNode

import coop_cmp.datasets  # noqa: F401  (registers them)
from coop_cmp.config.resolve import extend_cfg

Entry = tuple[str, int, str]


def config(name: str, root: Path | str, **options: Any) -> CfgNode:
    """Settings as train.py makes them; ``options`` are keys of DATASET, and SEED."""
    cfg = get_cfg_default()
    extend_cfg(cfg)
    cfg.SEED = options.pop("SEED", 1)
    cfg.DATASET.NAME, cfg.DATASET.ROOT = name, str(root)
    for key, value in options.items():
        cfg.DATASET[key] = value
    cfg.freeze()
    return cfg


def build(name: str, root: Path | str, **options: Any) -> Any:
    """The data set, as the engine builds it."""
    return DATASET_REGISTRY.get(name)(config(name, root, **options))


def write_images(folder: Path, paths: Iterable[str]) -> None:
    """Write a different tiny picture to each path."""
    for number, path in enumerate(paths):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(target)


def write_text(path: Path, *lines: str) -> None:
    """Write a text file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_split(path: Path, train: list[Entry], val: list[Entry], test: list[Entry]) -> None:
    """Write a split file as the CoOp codebase does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"train": train, "val": val, "test": test}), encoding="utf-8")


def pets(root: Path) -> Path:
    """A small OxfordPets whose labels do not appear in their order; returns its folder."""
    sizes = {"pug": 12, "beagle": 3, "birman": 9}
    labels = {"beagle": 0, "birman": 1, "pug": 2}
    train = [
        (f"{name}_{i}.jpg", labels[name], name)
        for i in range(12)
        for name, size in sizes.items()
        if i < size
    ]
    val = [
        (f"{name}_v{i}.jpg", labels[name], name)
        for name in ("birman", "pug", "beagle")
        for i in range(6)
    ]
    test = [(f"{name}_t.jpg", label, name) for name, label in labels.items()]
    folder = root / "oxford_pets"
    write_images(folder / "images", (path for path, _, _ in train + val + test))
    write_split(folder / "split_zhou_OxfordPets.json", train, val, test)
    return folder


def entries(images: list[Any], folder: Path) -> list[Entry]:
    """Path relative to ``folder``, label and class name of each image."""
    return [(Path(i.impath).relative_to(folder).as_posix(), i.label, i.classname) for i in images]
