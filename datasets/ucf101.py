"""UCF101 (Soomro, Zamir and Shah, 2012), the middle frame of each video."""

from __future__ import annotations

import re
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from .base import Sizes, SplitFileDataset
from .files import read_lines
from .sampling import split_by_class
from .splits import Item, Split


def spaced(action: str) -> str:
    """``ApplyEyeMakeup`` -> ``Apply_Eye_Makeup``."""
    return "_".join(re.findall("[A-Z][^A-Z]*", action))


@DATASET_REGISTRY.register()
class UCF101(SplitFileDataset):
    """UCF101 with the split of the CoOp codebase: first official list, 80/20 of training."""

    dataset_dir = "ucf101"
    image_dir = "UCF-101-midframes"
    split_file = "split_zhou_UCF101.json"
    split_id = "1I0S0q91hJfsV9Gf4xDIjgDq4AqBNJb1y"
    sizes = Sizes(101, 7639, 1898, 3783)

    def new_split(self) -> Split:
        """Split the training videos of the first official list."""
        lists = Path(self.dataset_dir, "ucfTrainTestlist")
        numbers = (line.split() for line in read_lines(lists / "classInd.txt"))
        labels = {action: int(number) - 1 for number, action in numbers}

        def read(name: str) -> list[Item]:
            items = []
            for line in read_lines(lists / name):
                action, video = line.split()[0].split("/")
                image = f"{spaced(action)}/{Path(video).stem}.jpg"
                items.append((image, labels[action], spaced(action)))
            return items

        trainval, test = read("trainlist01.txt"), read("testlist01.txt")
        return split_by_class(trainval, 0.8, 0.2)._replace(test=test)
