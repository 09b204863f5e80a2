"""Random views of images that depend on the seed, the epoch and the image alone.

Neither workers nor other users of the random generators matter then: all runs with one seed and one
augmentation see the same view of an image in an epoch, and can share its features.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset
from torchvision import transforms as T

from coop_cmp.features.augmix import AugMix

Batch = dict[str, Any]


@contextmanager
def kept_generators() -> Iterator[None]:
    """Give the random generators of Python, numpy and torch (CPU) their state back at the end."""
    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(state[0])
        np.random.set_state(state[1])
        torch.set_rng_state(state[2])


class SeededViews(Dataset[Batch]):
    """The views of N images in some epochs: item ``e * N + i`` is image i as seen in epoch e.

    A view depends on nothing but the seed, e and i: not on workers, batches or other views. The
    random generators are left as they were.

    Args:
        dataset: The N images, augmented by the random generators.
        epochs: Their number.
        seed: Of the run.
    """

    def __init__(self, dataset: Any, epochs: int, seed: int) -> None:
        self.dataset = dataset
        self.epochs = epochs
        self.seed = seed
        self.data_source = dataset.data_source
        self.transform = dataset.transform

    def __len__(self) -> int:
        return self.epochs * len(self.dataset)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Batch]:
        """Return a batch at once, which is how loaders ask."""
        with kept_generators():
            return [self._view(*divmod(index, len(self.dataset))) for index in indices]

    def _view(self, epoch: int, image: int) -> Batch:
        # A run without a seed has -1, which counts as one.
        words = np.random.SeedSequence([self.seed % 2**32, epoch, image]).generate_state(3)
        random.seed(int(words[0]))
        np.random.seed(words[1])
        torch.default_generator.manual_seed(int(words[2]))
        return self.dataset[image]


class EpochSampler:
    """Batches of another sampler as places ``epoch * images + image`` in :class:`SeededViews`.

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


def seeded_views(loader: DataLoader[Batch], epochs: int, seed: int) -> DataLoader[Batch]:
    """Return a loader with the batches of another, whose ``batch_sampler`` must be told the epoch.

    Its workers live as long as it does. What starts them is drawn from a generator of its own: a
    resumed run draws the same numbers as one that was never stopped.
    """
    dataset: Any = loader.dataset
    sampler: Any = EpochSampler(loader.batch_sampler, len(dataset))  # type: ignore[arg-type]
    return DataLoader(
        SeededViews(dataset, epochs, seed),
        batch_sampler=sampler,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.num_workers > 0,
        generator=torch.Generator(),
    )


class ManyViews:
    """The views [V, 3, H, W] of an image: first the image as any test sees it, then random ones."""

    def __init__(self, clean: Any, random: Any, views: int) -> None:
        self.clean = clean
        self.random = random
        self.views = views

    def __call__(self, image: Image.Image) -> Tensor:
        return torch.stack([self.clean(image), *(self.random(image) for _ in range(1, self.views))])


def random_view(cfg: Any, augmix: bool) -> T.Compose:
    """Return a random crop of INPUT.RRCROP_SCALE, a flip if INPUT.TRANSFORMS has one, and AugMix.

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
