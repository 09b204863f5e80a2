"""Lists of labelled images: reading and checking a split, few-shot sampling, base and new classes.

An image is a tuple ``(path relative to the image folder, label, class name)``, exactly as the
split files of the CoOp codebase store it; nothing here opens an image.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from coop_cmp.errors import UserError, closest
from coop_cmp.files import write_json

Item = tuple[str, int, str]
PARTS = ("train", "val", "test")
SUBSAMPLES = ("all", "base", "new")
MAX_VAL_SHOTS = 4  # the CoOp codebase keeps at most four validation images per class


class Split(NamedTuple):
    """The three lists of a data set."""

    train: list[Item]
    val: list[Item]
    test: list[Item]


def read_split(path: str | os.PathLike[str]) -> Split:
    """Read ``{"train": [[path, label, class name], ...], "val": [...], "test": [...]}``."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return Split(*([(str(p), y, str(name)) for p, y, name in content[part]] for part in PARTS))
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path} is not a split file (train, val and test lists of [path, label, class name]): "
            f"{type(error).__name__}: {error}; download it again, see docs/datasets.md"
        ) from error


def check_split(split: Split, source: str) -> None:
    """Refuse paths outside the data folder, labels other than 0..C-1 and classes without images.

    Args:
        split: what to check.
        source: where it came from, named in the messages.
    """
    names: dict[int, str] = {}
    for part, items in zip(PARTS, split, strict=True):
        for path, label, name in items:
            if os.path.isabs(path) or ".." in path.replace("\\", "/").split("/"):
                raise UserError(f"{source}: {part} entry {path!r} leaves the data folder: refused")
            if type(label) is not int or label < 0:
                raise UserError(
                    f"{source}: label of {part} entry {path!r} must be a whole number from 0, "
                    f"got {label!r}"
                )
            if names.setdefault(label, name) != name:
                raise UserError(
                    f"{source}: label {label} has two class names, {names[label]!r} and {name!r} "
                    f"({part} entry {path!r})"
                )
    trained = {label for _, label, _ in split.train}
    if not trained:
        raise UserError(f"{source}: the training list is empty")
    absent = sorted(set(range(max(names) + 1)) - trained)
    if absent:
        name = names.get(absent[0], "no name")
        raise UserError(
            f"{source}: labels must be 0 to {max(names)} with training images for each, but "
            f"{len(absent)} have none, the first is {absent[0]} ({name})"
        )


def check_files(image_dir: str | os.PathLike[str], items: Iterable[Item]) -> None:
    """Refuse a list that names files which are not there; each folder is listed only once."""
    listings: dict[str, set[str]] = {}
    missing = []
    for path, _, _ in items:
        folder, name = os.path.split(path)
        if folder not in listings:
            try:
                listings[folder] = set(os.listdir(os.path.join(image_dir, folder)))
            except (FileNotFoundError, NotADirectoryError):
                listings[folder] = set()
        if name not in listings[folder]:
            missing.append(path)
    if missing:
        raise UserError(
            f"{len(missing)} images of the split are missing below {image_dir}, the first is "
            f"{missing[0]!r}; unpack the archive again, see docs/datasets.md"
        )


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
    class in the order of first appearance. The generator is a local one, so that sampling never
    changes the random numbers of the training that follows.

    Args:
        split: all images.
        shots: images per class; -1 keeps all of them.
        seed: seed of the sample; -1 draws a different sample in each run.
        sample_val: whether the validation list is sampled too.
    """
    if shots == -1:
        return split
    if shots < 1:
        raise UserError(f"DATASET.NUM_SHOTS must be 1 or more, or -1 for all images, got {shots}")
    generator = random.Random(seed if seed >= 0 else None)

    def sample(items: list[Item], count: int) -> list[Item]:
        kept: list[Item] = []
        for group in by_label(items).values():
            kept += generator.sample(group, count) if len(group) >= count else group
        return kept

    fewest = min(by_label(split.train).values(), key=len)
    if len(fewest) < shots:
        print(
            f"Warning: class {fewest[0][2]!r} has only {len(fewest)} training images for {shots} "
            "shots; classes with too few keep all of theirs"
        )
    train = sample(split.train, shots)
    val = sample(split.val, min(shots, MAX_VAL_SHOTS)) if sample_val else split.val
    return Split(train, val, split.test)


def record_few_shot(folder: str | os.PathLike[str], shots: int, seed: int, split: Split) -> None:
    """Store the drawn images as ``shot_<K>-seed_<S>.json``; a read-only folder is no error.

    The record is for people and other programs: the sample is always drawn anew, so a torn, stale
    or foreign record is replaced and never decides what is trained on.
    """
    path = Path(folder) / f"shot_{shots}-seed_{seed}.json"
    drawn = {"train": [list(i) for i in split.train], "val": [list(i) for i in split.val]}
    try:
        if json.loads(path.read_text(encoding="utf-8")) == drawn:
            return
        print(f"{path} holds other images than seed {seed} draws from this split: written again")
    except (OSError, ValueError):
        pass
    store(path, drawn)


def store(path: Path, value: object) -> None:
    """Write JSON beside the data, or say in one line that the folder cannot be written to."""
    try:
        write_json(path, value)
    except OSError as error:
        print(f"Not stored: {path} ({error.strerror}); going on without it")


def subsample_classes(split: Split, subsample: Literal["all", "base", "new"] | str) -> Split:
    """Keep the first half of the classes (``base``, rounded up) or the rest, relabelled from 0."""
    if subsample not in SUBSAMPLES:
        raise UserError(
            f"DATASET.SUBSAMPLE_CLASSES must be one of {', '.join(SUBSAMPLES)}, "
            f"got {subsample!r}{closest(subsample, SUBSAMPLES)}"
        )
    if subsample == "all":
        return split
    labels = sorted({label for _, label, _ in split.train})
    half = (len(labels) + 1) // 2
    kept = labels[:half] if subsample == "base" else labels[half:]
    new_label = {label: index for index, label in enumerate(kept)}
    return Split(*([(p, new_label[y], n) for p, y, n in part if y in new_label] for part in split))
