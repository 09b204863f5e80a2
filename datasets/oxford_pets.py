"""Oxford-IIIT Pets (Parkhi et al., 2012)."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from .base import Sizes, SplitFileDataset
from .files import read_lines
from .sampling import split_by_class
from .splits import Item, Split


@DATASET_REGISTRY.register()
class OxfordPets(SplitFileDataset):
    """OxfordPets with the split of the CoOp codebase: official test images, 80/20 of the rest."""

    dataset_dir = "oxford_pets"
    image_dir = "images"
    split_file = "split_zhou_OxfordPets.json"
    split_id = "1501r8Ber4nNKvmlFVQZ8SeUHTcdTTEqs"
    sizes = Sizes(37, 2944, 736, 3669)

    def new_split(self) -> Split:
        """Split the official training images; the breed is the file name without its number."""

        def read(name: str) -> list[Item]:
            items = []
            for line in read_lines(Path(self.dataset_dir, "annotations", name)):
                image, label, *_ = line.split()
                items.append((f"{image}.jpg", int(label) - 1, image.rpartition("_")[0].lower()))
            return items

        return split_by_class(read("trainval.txt"), 0.8, 0.2)._replace(test=read("test.txt"))
