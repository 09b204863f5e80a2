"""ImageNet-A (Hendrycks et al., 2021)."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from .base import Sizes
from .imagenet import ShiftedTestSet


@DATASET_REGISTRY.register()
class ImageNetA(ShiftedTestSet):
    """Natural adversarial examples of 200 classes; logits are over those 200."""

    dataset_dir = "imagenet-adversarial"
    image_dir = "imagenet-a"
    sizes = Sizes(200, 7500, 0, 7500)
