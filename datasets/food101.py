"""Food-101 (Bossard, Guillaumin and Van Gool, 2014), split by CoOp rather than officially."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from .base import ClassFolderDataset, Sizes


@DATASET_REGISTRY.register()
class Food101(ClassFolderDataset):
    """Food101 with the split of the CoOp codebase."""

    dataset_dir = "food-101"
    image_dir = "images"
    split_file = "split_zhou_Food101.json"
    split_id = "1QK0tGi096I0Ba6kggatX1ee6dJFIcEJl"
    sizes = Sizes(101, 50500, 20200, 30300)
