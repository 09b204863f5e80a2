"""Loaders that serve features of a frozen image tower: of test images and of training views.

With fresh augmentation a training image is encoded anew in every epoch, or once for all runs that
share its view of that epoch. With V cached views it has V fixed augmentations, one of which is
drawn each time. That is another protocol, and results are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from typing import Any

import open_clip
import PIL
import torch
import torchvision
from torch import Tensor, nn
from torch.utils.data import DataLoader

from coop_cmp.features.epochs import EpochFeatures
from coop_cmp.features.features import (
    AugmentedViews,
    Batch,
    ImageEncoder,
    describe_transform,
    files_digest,
    serve,
    tower_digest,
)
from coop_cmp.features.store import Busy, FeatureStore, store_folder

# The same arithmetic in another version, other batches or on another device may differ in the last
# bit, so these are part of a key.
PACKAGES = (torch, torchvision, open_clip, PIL)
FORMAT = 2  # to be raised when reading, augmenting or encoding images changes here
VIEW_BATCH = 100  # images encoded at once; methods train with other batches, but share views
PART = 1000  # views of a stored file at least, where an epoch has fewer images


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
        # Of random views there is no end, so those that were not used for longest give way.
        budget = cfg.MODEL.FEATURE_STORE_MB << 20
        self.views_store = FeatureStore(store_folder(folder) / "views", budget) if folder else None

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

    def shared_loader(self, loader: DataLoader[Batch]) -> DataLoader[Batch]:
        """A loader of :func:`seeded_views` with features, which are the same in all runs.

        They are encoded for some epochs at a time, by whichever run comes first. Another run that
        needs them as well encodes later epochs in the meantime.
        """
        views: Any = loader.dataset
        epochs = max(1, PART // len(views.data_source))
        encoder = ImageEncoder(views, VIEW_BATCH, loader, self.encode_image)

        @lru_cache(maxsize=1)
        def part(number: int) -> Tensor:
            for candidate in range(number, -(-views.views // epochs)):
                with suppress(Busy):
                    made = self._epochs(views, candidate * epochs, epochs, encoder, wait=False)
                    if candidate == number:
                        return made
                with suppress(Busy):
                    return self._epochs(views, number * epochs, epochs, encoder, wait=False)
            return self._epochs(views, number * epochs, epochs, encoder, wait=True)

        return serve(loader, lambda epoch: part(epoch // epochs)[epoch % epochs], EpochFeatures)

    def _epochs(
        self, views: Any, first: int, epochs: int, encoder: ImageEncoder, wait: bool
    ) -> Tensor:
        """Features [epochs, N, E] of the views of some epochs."""
        images = len(views.data_source)
        features = self._fetch(
            partial(encoder, range(first * images, (first + epochs) * images)),
            f"epochs {first + 1} to {first + epochs}, seed {views.seed},",
            views.data_source,
            views.transform,
            VIEW_BATCH,
            [views.seed, first, epochs],
            per_image=epochs,
            wait=wait,
        )
        return features.unflatten(0, (epochs, images))

    def _features(
        self, loader: DataLoader[Batch], dataset: Any, batch_size: int, what: str, views: int = 0
    ) -> Tensor:
        """Features [N, E] of a data set that is the loader's or made from it."""
        source: Any = loader.dataset
        drawn = [views, self.cfg.SEED] if views else []
        return self._fetch(
            ImageEncoder(dataset, batch_size, loader, self.encode_image),
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
        wait: bool = True,
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
            wait: For another run that is making them.
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
                "views": views,
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
