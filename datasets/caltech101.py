"""Caltech101 without its background and second face class (Fei-Fei, Fergus and Perona, 2004)."""

from __future__ import annotations

from typing import ClassVar

from dassl.data.datasets import DATASET_REGISTRY

from .base import ClassFolderDataset, Sizes


@DATASET_REGISTRY.register()
class Caltech101(ClassFolderDataset):
    """Caltech101 with the split of the CoOp codebase."""

    dataset_dir = "caltech-101"
    image_dir = "101_ObjectCategories"
    split_file = "split_zhou_Caltech101.json"
    split_id = "1hyarUivQE36mY6jSomru6Fjd-JzwcCzN"
    sizes = Sizes(100, 4128, 1649, 2465)
    ignored = ("BACKGROUND_Google", "Faces_easy")
    renamed: ClassVar[dict[str, str]] = {
        "airplanes": "airplane",
        "Faces": "face",
        "Leopards": "leopard",
        "Motorbikes": "motorbike",
    }
