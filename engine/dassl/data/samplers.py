"""In which order the items of a data set are visited."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data.sampler import RandomSampler, Sampler, SequentialSampler
from yacs.config import CfgNode

from .datasets import Datum


def _group(data_source: Sequence[Datum], key: Callable[[Datum], int]) -> dict[int, list[int]]:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for index, item in enumerate(data_source):
        groups[key(item)].append(index)
    return dict(groups)


class RandomDomainSampler(Sampler[int]):
    """Each batch has ``batch_size / n_domain`` items of each of ``n_domain`` random domains.

    An epoch ends when a domain cannot fill its share any more. ``n_domain`` <= 0 means all.
    """

    def __init__(self, data_source: Sequence[Datum], batch_size: int, n_domain: int = 0) -> None:
        self.domains = _group(data_source, lambda item: item.domain)
        n_domain = n_domain if n_domain > 0 else len(self.domains)
        if n_domain > len(self.domains) or batch_size % n_domain:
            raise ValueError(
                f"N_DOMAIN: expected at most {len(self.domains)} domains that divide the batch "
                f"size {batch_size}, got {n_domain}"
            )
        self.n_domain = n_domain
        self.share = batch_size // n_domain
        self.length = len(list(iter(self)))

    def __iter__(self) -> Iterator[int]:
        remaining = {domain: random.sample(ids, len(ids)) for domain, ids in self.domains.items()}
        batches: list[int] = []
        while all(len(ids) >= self.share for ids in remaining.values()):
            for domain in random.sample(list(remaining), self.n_domain):
                batches += remaining[domain][: self.share]
                del remaining[domain][: self.share]
        return iter(batches)

    def __len__(self) -> int:
        return self.length


class SeqDomainSampler(Sampler[int]):
    """Each batch is of one domain; the domains take turns until one cannot fill a batch."""

    def __init__(self, data_source: Sequence[Datum], batch_size: int) -> None:
        self.domains = _group(data_source, lambda item: item.domain)
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[int]:
        remaining = {domain: random.sample(ids, len(ids)) for domain, ids in self.domains.items()}
        rounds = min(len(ids) for ids in remaining.values()) // self.batch_size
        for turn in range(rounds):
            for domain in sorted(remaining):
                yield from remaining[domain][turn * self.batch_size : (turn + 1) * self.batch_size]

    def __len__(self) -> int:
        rounds = min(len(ids) for ids in self.domains.values()) // self.batch_size
        return rounds * self.batch_size * len(self.domains)


class RandomClassSampler(Sampler[int]):
    """Each batch has ``n_ins`` items of each of ``batch_size / n_ins`` random classes.

    A class with fewer than ``n_ins`` items repeats some of them.
    """

    def __init__(self, data_source: Sequence[Datum], batch_size: int, n_ins: int) -> None:
        if batch_size < n_ins:
            raise ValueError(f"batch_size={batch_size} must be no less than n_ins={n_ins}")
        self.classes = _group(data_source, lambda item: item.label)
        self.n_ins = n_ins
        self.classes_per_batch = batch_size // n_ins
        if len(self.classes) < self.classes_per_batch:
            raise ValueError(
                f"N_INS: a batch of {batch_size} with {n_ins} items per class needs "
                f"{self.classes_per_batch} classes, but there are {len(self.classes)}"
            )
        self.length = len(list(iter(self)))

    def _chunks(self, ids: list[int]) -> list[list[int]]:
        if len(ids) < self.n_ins:
            ids = ids + random.choices(ids, k=self.n_ins - len(ids))
        ids = random.sample(ids, len(ids))
        last = len(ids) - len(ids) % self.n_ins
        return [ids[start : start + self.n_ins] for start in range(0, last, self.n_ins)]

    def __iter__(self) -> Iterator[int]:
        remaining = {label: self._chunks(ids) for label, ids in self.classes.items()}
        batches: list[int] = []
        while len(remaining) >= self.classes_per_batch:
            for label in random.sample(list(remaining), self.classes_per_batch):
                batches += remaining[label].pop(0)
                if not remaining[label]:
                    del remaining[label]
        return iter(batches)

    def __len__(self) -> int:
        return self.length


def build_sampler(
    sampler_type: str,
    cfg: CfgNode | None = None,
    data_source: Any = None,
    batch_size: int = 32,
    n_domain: int = 0,
    n_ins: int = 16,
) -> Sampler[int]:
    """Make the sampler ``sampler_type`` for ``data_source``."""
    if sampler_type == "RandomSampler":
        return RandomSampler(data_source)
    if sampler_type == "SequentialSampler":
        return SequentialSampler(data_source)
    if sampler_type == "RandomDomainSampler":
        return RandomDomainSampler(data_source, batch_size, n_domain)
    if sampler_type == "SeqDomainSampler":
        return SeqDomainSampler(data_source, batch_size)
    if sampler_type == "RandomClassSampler":
        return RandomClassSampler(data_source, batch_size, n_ins)
    raise ValueError(f"Unknown sampler type: {sampler_type}")
