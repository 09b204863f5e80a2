"""ImageNetV2 (Recht et al., 2019), the matched-frequency images."""

from __future__ import annotations

from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from coop_cmp.errors import UserError

from .base import Sizes
from .files import list_folders
from .imagenet import ShiftedTestSet, read_classnames
from .splits import Split


@DATASET_REGISTRY.register()
class ImageNetV2(ShiftedTestSet):
    """New test images of all 1,000 classes, in folders named 0 to 999."""

    dataset_dir = "imagenetv2"
    image_dir = "imagenetv2-matched-frequency-format-val"
    sizes = Sizes(1000, 10000, 0, 10000)

    def read(self, cfg: Any) -> Split:
        """List the folders by number; the n-th class is the n-th line of ``classnames.txt``."""
        ids = list(read_classnames(self.dataset_dir))
        if ids != sorted(ids):
            raise UserError(f"{self.dataset_dir}/classnames.txt must be sorted by WordNet id")
        folders = [str(number) for number in range(len(ids))]
        found = list_folders(self.image_dir)
        if sorted(folders) != found:
            odd = sorted(set(folders) ^ set(found))
            raise UserError(
                f"{self.image_dir} must have the folders 0 to {len(ids) - 1}, one for each line of "
                f"classnames.txt, but {odd[:3]} are missing or not among them"
            )
        (items,) = self.list_classes(ids, folders)
        return Split(items, [], items)
