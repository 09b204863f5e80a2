"""ImageNet-R (Hendrycks et al., 2021)."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from .base import Sizes
from .imagenet import ShiftedTestSet


@DATASET_REGISTRY.register()
class ImageNetR(ShiftedTestSet):
    """Renditions (art, toys, ...) of 200 classes; logits are over those 200."""

    dataset_dir = "imagenet-rendition"
    image_dir = "imagenet-r"
    sizes = Sizes(200, 30000, 0, 30000)
