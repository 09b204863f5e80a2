"""Training views that depend on the seed, the epoch and the image alone.

Neither workers nor other users of the random generators matter then: all runs with one seed and one
augmentation see the same view of an image in an epoch, and can share its features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader

from coop_cmp.features.features import AugmentedViews, Batch, StoredFeatures


class EpochSampler:
    """Batches of another sampler as places ``epoch * images + image`` in :class:`AugmentedViews`.

    Args:
        batches: Makes batches of images.
        images: Their number N.

    Attributes:
        epoch: To be set before an epoch begins.
    """

    def __init__(self, batches: BatchSampler, images: int) -> None:
        self.batches = batches
        self.images = images
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        first = self.epoch * self.images
        for batch in self.batches:
            yield [first + image for image in batch]


class EpochFeatures(StoredFeatures):
    """Batches with the features of the views that images have in an epoch.

    Args:
        features: Gives the features [N, E] of an epoch.
        data_source: The N images with their labels.
    """

    features: Callable[[int], Tensor]  # type: ignore[assignment]
    current: Tensor

    def of(self, rows: Tensor) -> Tensor:
        """The features [B, E] of some images in the epoch that is served."""
        return self.current[rows]

    def __getitem__(self, indices: list[int]) -> Batch:
        self.current = self.features(indices[0] // len(self))
        return super().__getitem__([index % len(self) for index in indices])


def seeded_views(loader: DataLoader[Batch], epochs: int, seed: int) -> DataLoader[Batch]:
    """A loader with the batches of another, whose ``batch_sampler`` has to be told the epoch.

    Its workers live as long as it does. What starts them is drawn from a generator of its own: a
    run that goes on from a checkpoint draws the same numbers as one that was never stopped.
    """
    dataset: Any = loader.dataset
    sampler: Any = EpochSampler(loader.batch_sampler, len(dataset))  # type: ignore[arg-type]
    return DataLoader(
        AugmentedViews(dataset, epochs, seed),
        batch_sampler=sampler,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.num_workers > 0,
        generator=torch.Generator(),
    )
