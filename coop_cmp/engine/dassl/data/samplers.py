"""In which order the items of a data set are visited."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data.sampler import RandomSampler, Sampler, SequentialSampler
from yacs.config import CfgNode

from .datasets import Datum


class _BalancedSampler(Sampler[int]):
    """Each batch has ``share`` items of each of ``groups_per_batch`` groups.

    The groups with the most items left come first, at random among equals. So an epoch uses as much
    of the data as it can and always has the same length, which schedules and progress rely on.
    """

    def __init__(
        self,
        data_source: Sequence[Datum],
        key: Callable[[Datum], int],
        share: int,
        groups_per_batch: int,
    ) -> None:
        self.groups: defaultdict[int, list[int]] = defaultdict(list)
        for index, item in enumerate(data_source):
            self.groups[key(item)].append(index)
        self.share = share
        self.groups_per_batch = groups_per_batch

    def _shuffled(self, ids: list[int]) -> list[int]:
        return random.sample(ids, len(ids))

    def _order(self, groups: list[int]) -> list[int]:
        return groups

    def __iter__(self) -> Iterator[int]:
        left = {group: self._shuffled(ids) for group, ids in self.groups.items()}
        while True:
            groups = random.sample(list(left), len(left))
            groups.sort(key=lambda group: -(len(left[group]) // self.share))
            chosen = groups[: self.groups_per_batch]
            if any(len(left[group]) < self.share for group in chosen):
                return
            for group in self._order(chosen):
                yield from left[group][: self.share]
                del left[group][: self.share]

    def __len__(self) -> int:
        state = random.getstate()
        length = sum(1 for _ in self)
        random.setstate(state)
        return length


class RandomDomainSampler(_BalancedSampler):
    """Each batch has equal shares of ``n_domain`` random domains (0 or less: of all)."""

    def __init__(self, data_source: Sequence[Datum], batch_size: int, n_domain: int = 0) -> None:
        domains = len({item.domain for item in data_source})
        n_domain = n_domain if n_domain > 0 else domains
        if n_domain > domains or batch_size % n_domain:
            raise ValueError(
                f"N_DOMAIN: expected at most {domains} domains, in equal shares of a batch of "
                f"{batch_size}; got {n_domain}"
            )
        super().__init__(data_source, lambda item: item.domain, batch_size // n_domain, n_domain)


class SeqDomainSampler(RandomDomainSampler):
    """Each batch has equal shares of all domains, in the order of the domains."""

    def __init__(self, data_source: Sequence[Datum], batch_size: int) -> None:
        super().__init__(data_source, batch_size)

    def _order(self, groups: list[int]) -> list[int]:
        return sorted(groups)


class RandomClassSampler(_BalancedSampler):
    """Each batch has ``n_ins`` items of each of ``batch_size / n_ins`` random classes.

    A class with fewer than ``n_ins`` items repeats some of them.
    """

    def __init__(self, data_source: Sequence[Datum], batch_size: int, n_ins: int) -> None:
        classes, needed = len({item.label for item in data_source}), batch_size // n_ins
        if not 1 <= needed <= classes:
            raise ValueError(
                f"N_INS: a batch of {batch_size} with {n_ins} items per class has {needed} "
                f"classes, expected 1 to {classes}"
            )
        super().__init__(data_source, lambda item: item.label, n_ins, needed)

    def _shuffled(self, ids: list[int]) -> list[int]:
        missing = max(self.share - len(ids), 0)
        return super()._shuffled(ids + random.choices(ids, k=missing))


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
