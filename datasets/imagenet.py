"""ImageNet (Deng et al., 2009) and three of its shifted test sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from coop_cmp.errors import UserError

from .base import FewShotDataset, Sizes
from .files import list_folders, list_items, read_lines
from .splits import Item, Split

CLASSNAMES = "classnames.txt"


def read_classnames(folder: str) -> dict[str, str]:
    """WordNet ids and class names of ``classnames.txt``, which has ``<id> <name>`` per line."""
    lines = (line.partition(" ") for line in read_lines(Path(folder, CLASSNAMES)))
    return {wordnet_id: name.strip() for wordnet_id, _, name in lines}


def classname_problems(classnames: dict[str, str]) -> list[str]:
    """What tells a class-name file from the curated list that CLIP and CoOp use.

    Files of the same name with plain WordNet words circulate; they cost points of accuracy. The
    curated list begins with "tench" and has 998 different names: two occur twice.
    """
    names = list(classnames.values())
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    problems = []
    if len(names) != 1000:
        problems.append(f"{CLASSNAMES} has {len(names)} classes, not 1000")
    if names[:1] != ["tench"]:
        problems.append(f'{CLASSNAMES} begins with {names[:1]}, not "tench"')
    if twice != ["missile", "sunglasses"]:
        problems.append(f"{CLASSNAMES} repeats {twice[:5]}, not missile and sunglasses")
    if list(classnames) != sorted(classnames):
        problems.append(f"{CLASSNAMES} is not in the order of the WordNet ids")
    return problems


class WordNetDataset(FewShotDataset):
    """A data set with one folder per WordNet id; labels follow the sorted ids.

    Attributes:
        imagenet_indices: for each label its index among ImageNet's classes, for classifiers whose
            weights belong to those (prompt learners build theirs from the class names).
    """

    def check(self, split: Split) -> None:
        """Nothing is left to check: the list was made from the folders themselves."""

    def list_classes(self, ids: Sequence[str], *parts: Sequence[str]) -> list[list[Item]]:
        """List the images of each part of the data set.

        Args:
            ids: the WordNet ids of labels 0, 1, ...
            parts: for each part the folders of those classes, below ``image_dir``.
        """
        classnames = read_classnames(self.dataset_dir)
        problems = classname_problems(classnames)
        self.notes += problems
        for problem in problems:
            print(f"Warning: {problem}; see docs/datasets.md")
        unnamed = [i for i in ids if i not in classnames]
        if unnamed:
            raise UserError(
                f"{len(unnamed)} of {len(ids)} class folders below {self.image_dir} are not in "
                f"{CLASSNAMES}: {unnamed[:3]}; see docs/datasets.md"
            )
        order = {wordnet_id: index for index, wordnet_id in enumerate(sorted(classnames))}
        self.imagenet_indices = [order[i] for i in ids]
        if len(ids) < len(classnames):
            self.notes.append(f"probabilities over the {len(ids)} classes of this set only")
        names = [classnames[i] for i in ids]
        return list_items(self.image_dir, parts, names, self.dataset_dir)


@DATASET_REGISTRY.register()
class ImageNet(WordNetDataset):
    """ImageNet: few-shot training images; the validation images are both val and test list."""

    dataset_dir = "imagenet"
    image_dir = "images"
    sizes = Sizes(1000, 1281167, 50000, 50000)
    sample_val = False

    def read(self, cfg: Any) -> Split:
        """List both folders, sorted, so that a seed draws the same images on every machine."""
        ids = list_folders(Path(self.image_dir, "train"))
        val_ids = list_folders(Path(self.image_dir, "val"))
        if ids != val_ids:
            odd = sorted(set(ids) ^ set(val_ids))
            raise UserError(
                f"{self.image_dir}: train/ and val/ must have the same class folders, but "
                f"{len(odd)} are in one only, such as {odd[0]}"
            )
        folders = ([f"{part}/{i}" for i in ids] for part in ("train", "val"))
        train, val = self.list_classes(ids, *folders)
        return Split(train, val, val)


class ShiftedTestSet(WordNetDataset):
    """A test set for models trained on ImageNet: the training list only names the classes."""

    def read(self, cfg: Any) -> Split:
        """List the class folders."""
        folders = list_folders(self.image_dir)
        (items,) = self.list_classes(folders, folders)
        return Split(items, [], items)

    def select(self, cfg: Any, split: Split) -> Split:
        """Keep everything: there is nothing to train on and there are no base classes."""
        if cfg.DATASET.SUBSAMPLE_CLASSES != "all":
            raise UserError(
                f"DATASET.SUBSAMPLE_CLASSES must be all for {cfg.DATASET.NAME}, which is only "
                f"tested on, got {cfg.DATASET.SUBSAMPLE_CLASSES!r}"
            )
        return split


@DATASET_REGISTRY.register()
class ImageNetA(ShiftedTestSet):
    """Natural adversarial examples of 200 classes (Hendrycks et al., 2021)."""

    dataset_dir = "imagenet-adversarial"
    image_dir = "imagenet-a"
    sizes = Sizes(200, 7500, 0, 7500)


@DATASET_REGISTRY.register()
class ImageNetR(ShiftedTestSet):
    """Renditions (art, toys, ...) of 200 classes (Hendrycks et al., 2021)."""

    dataset_dir = "imagenet-rendition"
    image_dir = "imagenet-r"
    sizes = Sizes(200, 30000, 0, 30000)


@DATASET_REGISTRY.register()
class ImageNetSketch(ShiftedTestSet):
    """Sketches of all 1,000 classes (Wang et al., 2019)."""

    dataset_dir = "imagenet-sketch"
    image_dir = "images"
    sizes = Sizes(1000, 50889, 0, 50889)
