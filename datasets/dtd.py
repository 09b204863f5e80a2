"""Describable Textures (Cimpoi et al., 2014), split by CoOp rather than officially."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from .base import ClassFolderDataset, Sizes


@DATASET_REGISTRY.register()
class DescribableTextures(ClassFolderDataset):
    """DescribableTextures with the split of the CoOp codebase."""

    dataset_dir = "dtd"
    image_dir = "images"
    split_file = "split_zhou_DescribableTextures.json"
    split_id = "1u3_QfB467jqHgNXC00UIzbLZRQCg2S7x"
    sizes = Sizes(47, 2820, 1128, 1692)
