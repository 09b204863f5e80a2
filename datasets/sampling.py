"""Which images a run sees: few-shot samples, base and new classes, new random splits.

Every draw uses a generator of its own, so that reading the data never changes the random numbers
of the training that follows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from coop_cmp.errors import UserError
from coop_cmp.files import read_file

from .files import store
from .splits import Item, Split, to_json

MAX_VAL_SHOTS = 4  # the CoOp codebase keeps at most four validation images per class


def by_label(items: Iterable[Item]) -> dict[int, list[Item]]:
    """Group by label; the labels stand in the order of their first appearance."""
    groups: dict[int, list[Item]] = {}
    for item in items:
        groups.setdefault(item[1], []).append(item)
    return groups


def few_shot(split: Split, shots: int, seed: int, *, sample_val: bool = True) -> Split:
    """Keep ``shots`` training and up to four validation images per class.

    The images are those that the CoOp codebase draws from the same split for the same seed: one
    generator seeded with ``seed`` serves the training list and then the validation list, class by
    class in the order of first appearance. A class with too few images keeps all of them.

    Args:
        split: all images.
        shots: images per class; -1 keeps all of them.
        seed: seed of the sample; -1 draws a different sample in each run.
        sample_val: whether the validation list is sampled too.
    """
    if shots == -1:
        return split
    generator = random.Random(seed if seed >= 0 else None)

    def sample(classes: dict[int, list[Item]], count: int) -> list[Item]:
        kept: list[Item] = []
        for images in classes.values():
            kept += generator.sample(images, count) if len(images) >= count else images
        return kept

    train = sample(by_label(split.train), shots)
    val = sample(by_label(split.val), min(shots, MAX_VAL_SHOTS)) if sample_val else split.val
    return Split(train, val, split.test)


def hold_out(split: Split, fold: str) -> Split:
    """Put a part of every class's training images in the place of the validation images.

    Args:
        split: The images of a run, after the few-shot sample.
        fold: Such as ``1/4`` for the first of four parts; empty for none.
    """
    if not fold:
        return split
    part, _, parts = fold.partition("/")
    whole = part.isdecimal() and parts.isdecimal()
    if not whole or not 1 <= int(part) <= int(parts) or int(parts) < 2:
        raise UserError(f"DATASET.FOLD must be such as 1/4 (part 1 of 4) or empty, got {fold!r}")
    train: list[Item] = []
    held: list[Item] = []
    for images in by_label(split.train).values():
        if len(images) < int(parts):
            raise UserError(
                f"DATASET.FOLD {fold}: class {images[0][2]!r} has only {len(images)} training "
                "images; use fewer parts"
            )
        held += images[int(part) - 1 :: int(parts)]
        train += [x for i, x in enumerate(images) if i % int(parts) != int(part) - 1]
    return Split(train, held, split.test)


def record_few_shot(path: Path, lists: dict[str, list[Item]]) -> None:
    """Store the drawn images as JSON with relative paths.

    The record is for people and other programs: the sample is always drawn anew, so a torn, stale
    or foreign record is replaced and never decides what is trained on.
    """
    text = to_json(lists)
    try:
        recorded = read_file(path)
    except OSError:
        recorded = b""
    if recorded != text.encode():
        if recorded:
            print(f"{path} is not what this seed draws from this split: written again")
        store(path, text)


def subsample_classes(split: Split, subsample: str) -> Split:
    """Keep the first half of the classes (``base``, rounded up) or the rest, relabelled from 0."""
    if subsample == "all":
        return split
    labels = sorted({label for _, label, _ in split.train})
    half = (len(labels) + 1) // 2
    kept = labels[:half] if subsample == "base" else labels[half:]
    new_label = {label: index for index, label in enumerate(kept)}
    return Split(*([(p, new_label[y], n) for p, y, n in part if y in new_label] for part in split))


def split_by_class(items: Iterable[Item], train_share: float, val_share: float) -> Split:
    """Split each class at random, always the same way: train, validation and what is left."""
    generator = random.Random(0)
    split = Split([], [], [])
    for images in by_label(sorted(items)).values():
        generator.shuffle(images)
        first = round(len(images) * train_share)
        second = first + round(len(images) * val_share)
        if not first or second == first:
            raise UserError(
                f"class {images[0][2]!r} has {len(images)} images, too few for a split of its own"
            )
        split.train.extend(images[:first])
        split.val.extend(images[first:second])
        split.test.extend(images[second:])
    return split
