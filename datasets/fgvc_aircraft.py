"""FGVC-Aircraft (Maji et al., 2013), by variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from coop_cmp.errors import UserError

from .base import FewShotDataset, Sizes
from .files import read_lines
from .splits import PARTS, Item, Split


@DATASET_REGISTRY.register()
class FGVCAircraft(FewShotDataset):
    """FGVCAircraft with its official lists; a label is a line number in ``variants.txt``."""

    dataset_dir = "fgvc_aircraft"
    image_dir = "images"
    sizes = Sizes(100, 3334, 3333, 3333)

    def read(self, cfg: Any) -> Split:
        """Read ``images_variant_{train,val,test}.txt``: image number, blank, variant."""
        variants = read_lines(Path(self.dataset_dir, "variants.txt"))
        labels = {variant: label for label, variant in enumerate(variants)}

        def read(path: Path) -> list[Item]:
            items = []
            for line in read_lines(path):
                image, _, variant = line.partition(" ")
                if variant not in labels:
                    raise UserError(f"{path}: variant {variant!r} is not in variants.txt")
                items.append((f"{image}.jpg", labels[variant], variant))
            return items

        folder = Path(self.dataset_dir)
        return Split(*(read(folder / f"images_variant_{part}.txt") for part in PARTS))
