"""ImageNet-Sketch (Wang et al., 2019)."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from .base import Sizes
from .imagenet import ShiftedTestSet


@DATASET_REGISTRY.register()
class ImageNetSketch(ShiftedTestSet):
    """Sketches of all 1,000 classes."""

    dataset_dir = "imagenet-sketch"
    image_dir = "images"
    sizes = Sizes(1000, 50889, 0, 50889)
