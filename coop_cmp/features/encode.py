"""Encoding the images of a data set, and digests of all that their features depend on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

from coop_cmp.features.store import checksum, digest
from coop_cmp.features.views import Batch, kept_generators

SILENCE = 30.0  # seconds without a line at most


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
        sized: Any = dataset
        self.encode_image = encode_image
        self.rows = list(range(len(sized)))
        self.loader = DataLoader(
            dataset,
            batch_sampler=BatchSampler(self.rows, batch_size, drop_last=False),
            num_workers=loader.num_workers,
            pin_memory=loader.pin_memory,
            persistent_workers=loader.num_workers > 0,
            collate_fn=_images,
        )

    def __call__(self, rows: Sequence[int] | None = None) -> Tensor:
        """Compute features [N, E] in single precision of some images, or of all, in order.

        The random generators are left as they were. Features leave their device at the end, all at
        once: a GPU need not wait while the next images are loaded. Every half minute a line
        tells how far it is.
        """
        if rows is not None:
            self.rows[:] = rows  # which the loader has
        features: list[Tensor] = []
        done, total = 0, len(self.rows)
        start = last = time.monotonic()
        with torch.no_grad(), kept_generators():
            for batch in self.loader:
                features.append(self.encode_image(batch).float())
                done, now = done + len(batch), time.monotonic()
                if now - last >= SILENCE and done < total:
                    left, last = (now - start) * (total - done) / done, now
                    print(f"encoded {done} of {total} images, about {left:.0f} s left", flush=True)
            return torch.cat(features).cpu()


def _images(items: Sequence[Batch]) -> Tensor:
    return torch.stack([item["img"] for item in items])


def tower_digest(visual: nn.Module) -> str:
    """Return a digest of a module's architecture and weights."""
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
    """Return a digest of files' places, sizes and times of change."""
    listed = []
    for path in paths:
        status = os.stat(path)
        listed.append([os.path.abspath(path), status.st_size, status.st_mtime_ns])
    return digest({"files": listed})


def describe_transform(transform: Any) -> str:
    """Return a transform with all its settings as text, the same in every process."""
    steps = getattr(transform, "transforms", None)
    name = type(transform).__qualname__
    if type(transform).__repr__ is object.__repr__:  # it would show an address in memory
        return f"{name}({[(k, describe_transform(v)) for k, v in sorted(vars(transform).items())]})"
    if isinstance(steps, list | tuple):
        settings = {k: v for k, v in vars(transform).items() if k == "p"}
        return f"{name}({settings}, [{', '.join(map(describe_transform, steps))}])"
    return repr(transform)
