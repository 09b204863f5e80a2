"""CIFAR-10 (Krizhevsky, 2009) as PNG files; ``scripts/datasets.sh prepare cifar10`` makes them."""

from __future__ import annotations

from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from .base import FewShotDataset, Sizes
from .files import list_items
from .sampling import split_by_class
from .splits import Split

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@DATASET_REGISTRY.register()
class CIFAR10FewShot(FewShotDataset):
    """CIFAR-10 with the official test images and 80/20 of the others, always the same.

    Dassl has a semi-supervised set that is called CIFAR10, hence the longer name.
    """

    dataset_dir = "cifar10"
    sizes = Sizes(10, 40000, 10000, 10000)

    def read(self, cfg: Any) -> Split:
        """List ``train/<class>`` and ``test/<class>``."""
        parts = [[f"{part}/{name}" for name in NAMES] for part in ("train", "test")]
        train, test = list_items(self.image_dir, parts, NAMES, self.dataset_dir)
        return split_by_class(train, 0.8, 0.2)._replace(test=test)
