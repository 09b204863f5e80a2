"""Loaders with features in place of images, for methods that do not change the image tower."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from typing import Any

import open_clip
import PIL
import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from coop_cmp.features.encode import ImageEncoder, describe_transform, files_digest, tower_digest
from coop_cmp.features.store import Busy, FeatureStore, store_folder
from coop_cmp.features.views import Batch, ManyViews, SeededViews, random_view

# The same arithmetic in another version, other batches or on another device may differ in the last
# bit, so these are part of a key.
PACKAGES = (torch, torchvision, open_clip, PIL)
FORMAT = 2  # to be raised when reading, augmenting or encoding images changes here
VIEW_BATCH = 100  # images encoded at once; methods train with other batches, but share views
EPOCH_VIEWS = 1000  # views of a stored file at least, where an epoch has fewer images
TEST_IMAGES = 512  # of a stored file of many views: what is lost when a run is killed
TEST_VIEWS = 128  # views of test images encoded at once


class StoredFeatures(Dataset[Batch]):
    """Batches of a data set with features in place of images.

    Args:
        features: Returns the features of some items [B].
        data_source: The N images with their labels (Dassl's ``Datum``); item ``e * N + i`` is
            image i.
    """

    def __init__(self, features: Callable[[Tensor], Tensor], data_source: Sequence[Any]) -> None:
        self.features = features
        self.paths = [item.impath for item in data_source]
        self.labels = torch.tensor([item.label for item in data_source])
        self.domains = torch.tensor([item.domain for item in data_source])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, indices: list[int]) -> Batch:
        items = torch.tensor(indices)
        images = items % len(self)
        return {
            "img": self.features(items),
            "label": self.labels[images],
            "domain": self.domains[images],
            "impath": [self.paths[i] for i in images.tolist()],
            "index": images,
        }


def feature_loader(
    loader: DataLoader[Batch], features: Callable[[Tensor], Tensor]
) -> DataLoader[Batch]:
    """Return a loader with the same batches as another, with features in place of images.

    A real data loader, since it uses the random generator as the other would: what comes after it
    must not depend on where features come from.
    """
    source: Any = loader.dataset
    return DataLoader(
        StoredFeatures(features, source.data_source),
        None,
        sampler=loader.batch_sampler,
        collate_fn=lambda batch: batch,
        pin_memory=loader.pin_memory,
        generator=loader.generator,
    )


class FeatureLoaders:
    """Replaces a trainer's loaders by loaders of image features.

    Args:
        cfg: MODEL.FEATURE_STORE says where features are stored; empty: nowhere.
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
        # Random views are unlimited, so the least recently used are evicted.
        budget = cfg.MODEL.FEATURE_STORE_MB << 20
        self.views_store = FeatureStore(store_folder(folder) / "views", budget) if folder else None

    def test_loader(self, loader: DataLoader[Batch]) -> DataLoader[Batch]:
        """Return the loader with features from the store.

        The loader itself if there is no store, or no list of files to find features by.
        """
        dataset: Any = getattr(loader, "dataset", None)
        if self.store is None or not hasattr(dataset, "data_source"):
            return loader
        batch_size = loader.batch_size or 1
        encoder = ImageEncoder(dataset, batch_size, loader, self.encode_image)
        items, transform = dataset.data_source, dataset.transform
        features = self._stored(encoder, "features", items, transform, batch_size)
        return feature_loader(loader, features.__getitem__)

    def shared_loader(self, loader: DataLoader[Batch]) -> DataLoader[Batch]:
        """Return a loader of :func:`seeded_views` with features, which are the same in all runs.

        They are encoded for some epochs at a time, by whichever run comes first. Another run that
        needs them as well encodes later epochs in the meantime.
        """
        views: Any = loader.dataset
        images = len(views.data_source)
        epochs = max(1, EPOCH_VIEWS // images)
        encoder = ImageEncoder(views, VIEW_BATCH, loader, self.encode_image)

        def stored(part: int, wait: bool) -> Tensor:
            first = part * epochs
            return self._stored(
                partial(encoder, range(first * images, (first + epochs) * images)),
                f"epochs {first + 1} to {first + epochs}, seed {views.seed},",
                views.data_source,
                views.transform,
                VIEW_BATCH,
                [views.seed, first, epochs],
                per_image=epochs,
                wait=wait,
            )

        @lru_cache(maxsize=1)
        def part_of(number: int) -> Tensor:
            for candidate in range(number, -(-views.epochs // epochs)):
                with suppress(Busy):
                    made = stored(candidate, wait=False)
                    if candidate == number:
                        return made
                with suppress(Busy):
                    return stored(number, wait=False)
            return stored(number, wait=True)

        def features(items: Tensor) -> Tensor:
            part = int(items[0]) // (epochs * images)  # a batch is of one epoch
            return part_of(part)[items - part * epochs * images]

        return feature_loader(loader, features)

    def _stored(
        self,
        compute: Callable[[], Tensor],
        what: str,
        items: Sequence[Any],
        transform: Any,
        batch_size: int,
        views: Sequence[int] = (),
        per_image: int = 1,
        wait: bool = True,
    ) -> Tensor:
        """Return computed features from the store, by all that they depend on.

        Args:
            compute: Makes them.
            what: They are, for people.
            items: The images.
            transform: Of an image.
            batch_size: Images encoded at once.
            views: Numbers that random views depend on, ``per_image`` of each image.
            wait: Whether to wait for another run that makes them.
        """
        store = self.views_store if views else self.store
        if store is None:
            return compute()
        names = f"{self.cfg.DATASET.NAME}, {self.cfg.MODEL.BACKBONE.NAME}"
        return store.fetch(
            {
                "about": f"{what} of {len(items)} images ({names})",
                "tower": self._tower,
                "precision": self.precision,
                "device": next(self.visual.parameters()).device.type,
                "batch": batch_size,
                "transform": describe_transform(transform),
                "upright": self.cfg.INPUT.UPRIGHT,
                "files": files_digest([item.impath for item in items]),
                "views": list(views),
                "versions": {package.__name__: package.__version__ for package in PACKAGES},
                "format": FORMAT,
            },
            compute,
            (len(items) * per_image, getattr(self.visual, "output_dim", None)),
            wait,
        )

    @cached_property
    def _tower(self) -> str:
        return tower_digest(self.visual)


class ManyViewsLoaders(FeatureLoaders):
    """Replaces a trainer's test loaders by loaders of the features [B, V, E] of many views.

    Views depend on the seed and on the image's place in its list, and on nothing else. They are
    encoded part by part when they are needed, and stored.

    Args:
        arguments: Those of :class:`FeatureLoaders`.
        views: V, the image itself included.
        augmix: Whether random views are mixed by :class:`AugMix`.
    """

    def __init__(self, *arguments: Any, views: int, augmix: bool) -> None:
        super().__init__(*arguments)
        self.views = views
        self.random = random_view(self.cfg, augmix)

    def test_loader(self, loader: DataLoader[Batch]) -> DataLoader[Batch]:
        """Return the loader with features [B, V, E] of each image's views."""
        if isinstance(loader.dataset, StoredFeatures):
            return loader
        dataset: Any = copy.copy(loader.dataset)
        dataset.transform = ManyViews(dataset.transform, self.random, self.views)
        at_once = max(1, TEST_VIEWS // self.views)
        seeded = SeededViews(dataset, 1, self.cfg.SEED)
        encoder = ImageEncoder(seeded, at_once, loader, self._encode_views)

        @lru_cache(maxsize=2)
        def part_of(number: int) -> Tensor:
            first = number * TEST_IMAGES
            rows = range(first, min(first + TEST_IMAGES, len(dataset)))
            return self._stored(
                partial(encoder, rows),
                f"{self.views} views, seed {self.cfg.SEED},",
                [dataset.data_source[row] for row in rows],
                dataset.transform,
                at_once,
                [self.cfg.SEED, first],
                per_image=self.views,
            )

        def features(items: Tensor) -> Tensor:
            places = (divmod(item, TEST_IMAGES) for item in items.tolist())
            return torch.stack([part_of(part)[row] for part, row in places])

        return feature_loader(loader, features)

    def _encode_views(self, images: Tensor) -> Tensor:
        """Compute features [B, V, E] of views [B, V, 3, H, W]."""
        return self.encode_image(images.flatten(0, 1)).unflatten(0, images.shape[:2])
