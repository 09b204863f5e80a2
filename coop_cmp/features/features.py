"""Image features of a data loader: what they depend on, encoding them, and serving them again."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset
from torchvision import transforms as T

from coop_cmp.features.store import checksum, digest

Batch = dict[str, Any]


class StoredFeatures(Dataset[Batch]):
    """Batches of a data set with features in place of images.

    Args:
        features: [V, N, E]: V views of each of N images. A view is drawn for each image of a batch.
        data_source: The N images with their labels (Dassl's ``Datum``).
    """

    def __init__(self, features: Tensor, data_source: Sequence[Any]) -> None:
        self.features = features
        self.paths = [item.impath for item in data_source]
        self.labels = torch.tensor([item.label for item in data_source])
        self.domains = torch.tensor([item.domain for item in data_source])

    def __len__(self) -> int:
        return len(self.paths)

    def of(self, rows: Tensor) -> Tensor:
        """The features [B, E] that stand for some images."""
        views = len(self.features)
        view = torch.randint(views, rows.shape) if views > 1 else torch.zeros_like(rows)
        return self.features[view, rows]

    def __getitem__(self, indices: list[int]) -> Batch:
        rows = torch.tensor(indices)
        return {
            "img": self.of(rows),
            "label": self.labels[rows],
            "domain": self.domains[rows],
            "impath": [self.paths[i] for i in indices],
            "index": rows,
        }


class AugmentedViews(Dataset[Batch]):
    """V views of each of N images: item ``v * N + i`` is view v of image i.

    A view depends on nothing but the seed, v and i: not on workers, batches or other views. The
    random generators are left as they were.

    Args:
        dataset: The N images, augmented by the random generators.
        views: V.
        seed: Of the run.
    """

    def __init__(self, dataset: Any, views: int, seed: int) -> None:
        self.dataset = dataset
        self.views = views
        self.seed = seed
        self.data_source = dataset.data_source
        self.transform = dataset.transform

    def __len__(self) -> int:
        return self.views * len(self.dataset)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Batch]:
        """A batch at once, which is how loaders ask."""
        with undisturbed_generators():
            return [self._view(*divmod(index, len(self.dataset))) for index in indices]

    def _view(self, view: int, image: int) -> Batch:
        # A run without a seed has -1, which counts as one.
        words = np.random.SeedSequence([self.seed % 2**32, view, image]).generate_state(3)
        random.seed(int(words[0]))
        np.random.seed(words[1])
        torch.default_generator.manual_seed(int(words[2]))
        return self.dataset[image]


def serve(
    loader: DataLoader[Batch], features: Any, kind: type[StoredFeatures] = StoredFeatures
) -> DataLoader[Batch]:
    """A loader with the same batches as another, with features [V, N, E] in place of images.

    A real data loader, since it uses the random generator as the other would: what comes after it
    must not depend on where features come from.
    """
    source: Any = loader.dataset
    dataset = kind(features, source.data_source)
    return DataLoader(
        dataset,
        None,
        sampler=loader.batch_sampler,
        collate_fn=_as_it_is,
        pin_memory=loader.pin_memory,
        generator=loader.generator,
    )


def _as_it_is(batch: Any) -> Any:
    return batch


class ImageEncoder:
    """Encodes images of a data set; its workers, and what they have decoded, stay for the next.

    Args:
        dataset: The images.
        batch_size: How many are encoded at once.
        loader: The run's own, for as many workers and the same kind of memory.
        encode_image: Makes features of a batch of images, on its device.
    """

    def __init__(
        self,
        dataset: Dataset[Batch],
        batch_size: int,
        loader: DataLoader[Batch],
        encode_image: Callable[[Tensor], Tensor],
    ) -> None:
        images, end = _without_end(dataset)
        self.encode_image = encode_image
        self.rows = list(range(len(images)))
        self.loader = DataLoader(
            images,
            batch_sampler=BatchSampler(self.rows, batch_size, drop_last=False),
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            persistent_workers=loader.num_workers > 0,
            collate_fn=partial(_to_tensor, end=end),
        )

    def __call__(self, rows: Sequence[int] | None = None) -> Tensor:
        """Features [N, E] in single precision of some images, or of all, in order.

        The random generators are left as they were. Features leave their device at the end, all at
        once: a GPU need not wait while the next images are loaded.
        """
        if rows is not None:
            self.rows[:] = rows  # which the loader has
        with torch.no_grad(), undisturbed_generators():
            return torch.cat([self.encode_image(batch).float() for batch in self.loader]).cpu()


def _without_end(dataset: Any) -> tuple[Any, T.Normalize | None]:
    """A data set whose transform leaves out ToTensor and Normalize at its end, and the latter.

    The data set itself and None, if its transform ends otherwise.
    """
    if hasattr(dataset, "dataset"):  # views or a part of another
        inner, end = _without_end(dataset.dataset)
        change = {"dataset": inner}
    else:
        steps: list[Any] = getattr(dataset.transform, "transforms", [])
        plain = [type(step) for step in steps[-2:]] == [T.ToTensor, T.Normalize]
        end = steps[-1] if plain else None
        change = {"transform": T.Compose(steps[:-2])}
    if end is None:
        return dataset, None
    changed = copy(dataset)
    vars(changed).update(change)
    return changed, end


def _to_tensor(items: list[Batch], end: T.Normalize | None) -> Tensor:
    """The images of a batch, with the end of their transform: the same numbers, for all at once."""
    images = [item["img"] for item in items]
    if end is None:
        return torch.stack(images)
    pixels = np.stack([np.asarray(image) for image in images])
    if pixels.dtype != np.uint8 or pixels.ndim != 4:  # grey, or not in 8 bits
        return end(torch.stack([T.functional.to_tensor(image) for image in images]))
    batch = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()  # [B, 3, H, W]
    return end(batch.float().div(255))


@contextmanager
def undisturbed_generators() -> Iterator[None]:
    """Give the random generators of Python, numpy and torch (CPU) their state back at the end."""
    state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(state[0])
        np.random.set_state(state[1])
        torch.set_rng_state(state[2])


def tower_digest(visual: nn.Module) -> str:
    """A digest of a module's architecture and weights."""
    weights = {name: checksum(value) for name, value in visual.state_dict().items()}
    # What repr does not show, such as the number of heads.
    settings = {
        f"{module_name}.{name}": str(value)
        for module_name, module in visual.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str | tuple) and name != "training"
    }
    return digest({"architecture": repr(visual), "settings": settings, "weights": weights})


def files_digest(paths: Sequence[str]) -> str:
    """A digest of files' places, sizes and times of change."""
    listed = []
    for path in paths:
        status = os.stat(path)
        listed.append([os.path.abspath(path), status.st_size, status.st_mtime_ns])
    return digest({"files": listed})


def describe_transform(transform: Any) -> str:
    """A transform with all its settings as text, the same in every process."""
    steps = getattr(transform, "transforms", None)
    name = type(transform).__qualname__
    if type(transform).__repr__ is object.__repr__:  # it would show an address in memory
        return f"{name}({[(k, describe_transform(v)) for k, v in sorted(vars(transform).items())]})"
    if isinstance(steps, list | tuple):
        settings = {k: v for k, v in vars(transform).items() if k == "p"}
        return f"{name}({settings}, [{', '.join(map(describe_transform, steps))}])"
    return repr(transform)
