"""SUN397 (Xiao et al., 2010)."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from .base import Sizes, SplitFileDataset
from .files import read_lines
from .sampling import split_by_class
from .splits import Item, Split


def scene_name(category: str) -> str:
    """``/a/apse/indoor`` -> ``indoor apse``: no index letter, the kind of place first."""
    return " ".join(reversed(category.split("/")[2:]))


@DATASET_REGISTRY.register()
class SUN397(SplitFileDataset):
    """SUN397 with the split of the CoOp codebase: first official partition, 80/20 of training."""

    dataset_dir = "sun397"
    image_dir = "SUN397"
    split_file = "split_zhou_SUN397.json"
    split_id = "1y2RD81BYuiyvebdN-JymPfyWYcd8_MUq"
    sizes = Sizes(397, 15880, 3970, 19850)

    def new_split(self) -> Split:
        """Split the training images of the first partition."""
        folder = Path(self.dataset_dir)
        labels = {name: label for label, name in enumerate(read_lines(folder / "ClassName.txt"))}

        def read(name: str) -> list[Item]:
            items = []
            for line in read_lines(folder / name):
                category = line.rpartition("/")[0]
                items.append((line[1:], labels[category], scene_name(category)))
            return items

        trainval, test = read("Training_01.txt"), read("Testing_01.txt")
        return split_by_class(trainval, 0.8, 0.2)._replace(test=test)
