"""Features of many views of each test image, for methods that learn at test time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import transforms as T

from coop_cmp.features.augmix import AugMix
from coop_cmp.features.features import AugmentedViews, Batch, ImageEncoder, StoredFeatures, serve
from coop_cmp.features.views import FrozenFeatures

PART = 512  # images of a stored file: what is lost when a run is killed, and held in memory
ENCODED = 128  # views encoded at once


class ManyViews:
    """The views [V, 3, H, W] of an image: first the image as any test sees it, then random ones."""

    def __init__(self, clean: Any, random: Any, views: int) -> None:
        self.clean = clean
        self.random = random
        self.views = views

    def __call__(self, image: Image.Image) -> Tensor:
        return torch.stack([self.clean(image), *(self.random(image) for _ in range(1, self.views))])


def random_view(cfg: Any, augmix: bool) -> T.Compose:
    """A random crop of INPUT.RRCROP_SCALE, a flip if INPUT.TRANSFORMS has one, perhaps AugMix.

    Crops are scaled bilinearly, as published, whatever INPUT.INTERPOLATION says of test images.
    """
    names = cfg.INPUT.TRANSFORMS
    steps: list[Any] = [T.RandomResizedCrop(cfg.INPUT.SIZE, scale=tuple(cfg.INPUT.RRCROP_SCALE))]
    if "random_flip" in names:
        steps.append(T.RandomHorizontalFlip())
    steps.append(AugMix() if augmix else T.ToTensor())
    if "normalize" in names:
        steps.append(T.Normalize(cfg.INPUT.PIXEL_MEAN, cfg.INPUT.PIXEL_STD))
    return T.Compose(steps)


class StoredViews(StoredFeatures):
    """Batches with features [B, V, E] of all views of each image.

    Args:
        features: Gives the features [PART, V, E] of a part of the images by its number.
        data_source: The images with their labels.
    """

    features: Callable[[int], Tensor]  # type: ignore[assignment]

    def of(self, rows: Tensor) -> Tensor:
        """Features [B, V, E] of some images, from as many parts as they lie in."""
        return torch.stack([self.features(row // PART)[row % PART] for row in rows.tolist()])


class ViewFeatures(FrozenFeatures):
    """Replaces a trainer's test loaders by loaders of the features of all views of an image.

    Views depend on the seed and on the image's place in its list, and on nothing else. They are
    encoded part by part when they are needed, and kept in the store.
    """

    def __init__(self, *arguments: Any, views: int, augmix: bool) -> None:
        super().__init__(*arguments)
        self.views = views
        self.random = random_view(self.cfg, augmix)

    def test_loader(self, loader: DataLoader[Batch]) -> DataLoader[Batch]:
        """The loader with features [B, V, E] of each image's views."""
        if isinstance(loader.dataset, StoredViews):
            return loader
        dataset: Any = copy.copy(loader.dataset)
        dataset.transform = ManyViews(dataset.transform, self.random, self.views)
        drawn = AugmentedViews(dataset, 1, self.cfg.SEED)
        at_once = max(1, ENCODED // self.views)
        encoder = ImageEncoder(drawn, at_once, loader, self._encode_views)

        @lru_cache(maxsize=2)
        def part(number: int) -> Tensor:
            first = number * PART
            rows = range(first, min(first + PART, len(dataset)))
            return self._fetch(
                partial(encoder, rows),
                f"{self.views} views, seed {self.cfg.SEED},",
                [dataset.data_source[row] for row in rows],
                dataset.transform,
                at_once,
                [self.cfg.SEED, first],
                per_image=self.views,
            )

        return serve(loader, part, StoredViews)

    def _encode_views(self, images: Tensor) -> Tensor:
        """Features [B, V, E] of views [B, V, 3, H, W]."""
        return self.encode_image(images.flatten(0, 1)).unflatten(0, images.shape[:2])
