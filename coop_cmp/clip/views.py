"""Loaders that serve features of a frozen image tower: for tests, and cached training views.

With fresh augmentation a training image is encoded anew in every epoch. With V cached views it has
V fixed augmentations, one of which is drawn each time; the image tower is then idle during
training. It is another protocol, and results are marked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import open_clip
import PIL
import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from coop_cmp.clip.features import (
    Batch,
    describe_transform,
    encode,
    files_digest,
    serve,
    tower_digest,
)
from coop_cmp.clip.store import FeatureStore, store_folder

# The same arithmetic in another version, other batches or on another device may differ in the last
# bit, so these are part of a key.
PACKAGES = (torch, torchvision, open_clip, PIL)
FORMAT = 1  # to be raised when reading, augmenting or encoding images changes here
VIEW_BATCH = 100  # images encoded at once; methods train with other batches, but share views


class AugmentedViews(Dataset[Batch]):
    """V views of each of N images: item ``v * N + i`` is view v of image i.

    A view depends on nothing but the seed, v and i: not on workers, batches or other views.

    Args:
        dataset: The N images, augmented by the random generators.
        views: V.
        seed: Of the run.
    """

    def __init__(self, dataset: Any, views: int, seed: int) -> None:
        self.dataset = dataset
        self.views = views
        self.seed = seed

    def __len__(self) -> int:
        return self.views * len(self.dataset)

    def __getitem__(self, index: int) -> Batch:
        view, image = divmod(index, len(self.dataset))
        # A run without a seed has -1, which counts as one.
        words = np.random.SeedSequence([self.seed % 2**32, view, image]).generate_state(3)
        random.seed(int(words[0]))
        np.random.seed(words[1])
        torch.default_generator.manual_seed(int(words[2]))
        return {"img": self.dataset[image]["img"]}


class FrozenFeatures:
    """Replaces a trainer's loaders by loaders of image features.

    Args:
        cfg: MODEL.FEATURE_STORE says where features are kept; empty: nowhere.
        visual: The image tower, which must not change.
        encode_image: Makes features [B, E] of images [B, 3, H, W], on its device and in its
            precision.
        precision: Name of that precision.
    """

    def __init__(
        self, cfg: Any, visual: nn.Module, encode_image: Callable[[Tensor], Tensor], precision: str
    ) -> None:
        self.cfg = cfg
        self.visual = visual
        self.encode_image = encode_image
        self.precision = precision
        folder = cfg.MODEL.FEATURE_STORE
        self.store = FeatureStore(store_folder(folder)) if folder else None

    def test_loader(self, loader: DataLoader[Batch]) -> DataLoader[Batch]:
        """The loader with features from the store.

        The loader itself if there is no store, or no list of files to find features by.
        """
        listed = hasattr(getattr(loader, "dataset", None), "data_source")
        if self.store is None or not listed:
            return loader
        features = self._features(loader, loader.dataset, loader.batch_size or 1, "features")
        return serve(loader, features[None])

    def train_loader(self, loader: DataLoader[Batch], views: int) -> DataLoader[Batch]:
        """The loader with one of some cached views of each image, drawn anew each time."""
        dataset = AugmentedViews(loader.dataset, views, self.cfg.SEED)
        what = f"{views} training views, seed {self.cfg.SEED},"
        features = self._features(loader, dataset, VIEW_BATCH, what, views=views)
        return serve(loader, features.unflatten(0, (views, -1)))

    def _features(
        self, loader: DataLoader[Batch], dataset: Any, batch_size: int, what: str, views: int = 0
    ) -> Tensor:
        """Features [N, E] of a data set that is the loader's or made from it."""

        def compute() -> Tensor:
            return encode(dataset, batch_size, loader.num_workers, self.encode_image)

        source: Any = loader.dataset
        drawn = [views, self.cfg.SEED] if views else []
        return self._fetch(
            compute,
            what,
            source.data_source,
            source.transform,
            batch_size,
            drawn,
            per_image=max(views, 1),
        )

    def _fetch(
        self,
        compute: Callable[[], Tensor],
        what: str,
        items: Sequence[Any],
        transform: Any,
        batch_size: int,
        views: list[int],
        per_image: int = 1,
    ) -> Tensor:
        """Computed features from the store, by all that they depend on.

        Args:
            compute: Makes them.
            what: They are, for people.
            items: The images.
            transform: Of an image.
            batch_size: Images encoded at once.
            views: Numbers that random views depend on.
            per_image: How many views an image has.
        """
        if self.store is None:
            return compute()
        names = f"{self.cfg.DATASET.NAME}, {self.cfg.MODEL.BACKBONE.NAME}"
        return self.store.fetch(
            {
                "about": f"{what} of {len(items)} images ({names})",
                "tower": self._tower,
                "precision": self.precision,
                "device": next(self.visual.parameters()).device.type,
                "batch": batch_size,
                "transform": describe_transform(transform),
                "files": files_digest([item.impath for item in items]),
                "views": views,
                "versions": {package.__name__: package.__version__ for package in PACKAGES},
                "format": FORMAT,
            },
            compute,
            (len(items) * per_image, getattr(self.visual, "output_dim", None)),
        )

    @cached_property
    def _tower(self) -> str:
        return tower_digest(self.visual)
