"""Oxford Flowers 102 (Nilsback and Zisserman, 2008)."""

from __future__ import annotations

import json
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from .base import Sizes, SplitFileDataset
from .files import read_lines, read_matlab
from .sampling import split_by_class
from .splits import Split


@DATASET_REGISTRY.register()
class OxfordFlowers(SplitFileDataset):
    """OxfordFlowers with the split of the CoOp codebase, which is not the official one."""

    dataset_dir = "oxford_flowers"
    image_dir = "jpg"
    split_file = "split_zhou_OxfordFlowers.json"
    split_id = "1Pp0sRXzZFZq15zVOzKjKBu4A9i01nozT"
    sizes = Sizes(102, 4093, 1633, 2463)

    def new_split(self) -> Split:
        """Split each class into 50 % training, 20 % validation and 30 % test images."""
        folder = Path(self.dataset_dir)
        names = json.loads("".join(read_lines(folder / "cat_to_name.json")))
        labels = [int(label) for label in read_matlab(folder / "imagelabels.mat")["labels"]]
        items = [
            (f"image_{number:05d}.jpg", label - 1, names[str(label)])
            for number, label in enumerate(labels, start=1)
        ]
        return split_by_class(items, 0.5, 0.2)
