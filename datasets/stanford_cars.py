"""Stanford Cars (Krause et al., 2013)."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from .base import Sizes, SplitFileDataset
from .files import read_matlab
from .sampling import split_by_class
from .splits import Item, Split


def year_first(name: str) -> str:
    """``Audi TTS Coupe 2012`` -> ``2012 Audi TTS Coupe``."""
    model, _, year = name.rpartition(" ")
    return f"{year} {model}"


@DATASET_REGISTRY.register()
class StanfordCars(SplitFileDataset):
    """StanfordCars with the split of the CoOp codebase: official test images, 80/20 of the rest."""

    dataset_dir = "stanford_cars"
    split_file = "split_zhou_StanfordCars.json"
    split_id = "1ObCFbaAgVu0I-k_Au-gIUcefirdAuizT"
    sizes = Sizes(196, 6509, 1635, 8041)

    def new_split(self) -> Split:
        """Split the official training images."""
        folder = Path(self.dataset_dir)
        names = read_matlab(folder / "devkit" / "cars_meta.mat")["class_names"]

        def read(image_dir: str, path: Path) -> list[Item]:
            labels = [
                (str(a["fname"]), int(a["class"]) - 1) for a in read_matlab(path)["annotations"]
            ]
            return [(f"{image_dir}/{f}", y, year_first(str(names[y]))) for f, y in labels]

        test = read("cars_test", folder / "cars_test_annos_withlabels.mat")
        trainval = read("cars_train", folder / "devkit" / "cars_train_annos.mat")
        return split_by_class(trainval, 0.8, 0.2)._replace(test=test)
