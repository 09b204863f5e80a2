"""What all data sets share: find the folder, read the split, sample, keep base or new classes."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from dassl.data.datasets import DatasetBase, Datum

from coop_cmp.errors import UserError

from .files import list_folders, list_items, store
from .sampling import (
    by_label,
    few_shot,
    hold_out,
    record_few_shot,
    split_by_class,
    subsample_classes,
)
from .splits import (
    Item,
    Split,
    check_files,
    check_split,
    read_split,
    same_in_a_prompt,
    to_json,
)

FEWEST = 4  # images of a class that can be split into training, validation and test


class Sizes(NamedTuple):
    """The published numbers of classes and images, which ``scripts/datasets.sh check`` compares."""

    classes: int
    train: int
    val: int
    test: int


class ListedImage(Datum):
    """A Datum whose file is known to exist, so that a million of them need no million look-ups."""

    def __init__(self, impath: str, label: int, domain: int = 0, classname: str = "") -> None:
        self._impath = impath
        self._label = label
        self._domain = domain
        self._classname = classname


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a million new, living objects again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def data_folder(cfg: Any, name: str) -> str:
    """The folder ``name`` below DATASET.ROOT, which must exist."""
    if not cfg.DATASET.ROOT:
        raise UserError(
            f"no data folder given: {cfg.DATASET.NAME} is looked for in {name or 'the folder'} "
            "below --root (DATASET.ROOT); see docs/datasets.md"
        )
    folder = os.path.join(os.path.abspath(os.path.expanduser(cfg.DATASET.ROOT)), name)
    if not os.path.isdir(folder):
        raise UserError(
            f"{cfg.DATASET.NAME}: no folder {folder}; --root (DATASET.ROOT) must be the folder "
            f"that holds {name or 'the images'}, see docs/datasets.md for the layout"
        )
    return folder


class FewShotDataset(DatasetBase):
    """Base of all data sets: a child says where its images are and reads its lists.

    A child sets ``dataset_dir`` (below DATASET.ROOT) and ``image_dir`` (below that, may be empty;
    image paths are relative to it) and implements :meth:`read`. In an instance both are full paths.

    Attributes:
        sizes: published numbers, or None when there are none.
        sample_val: whether few-shot runs sample the validation list as well.
        notes: what a reader of the results must know, copied into ``results.json``.
        pictures_of: the folder whose pictures these are, where a data set shows another one's in a
            different way; they are then drawn together when test images are resampled.
    """

    dataset_dir = ""
    image_dir = ""
    sizes: ClassVar[Sizes | None] = None
    sample_val: ClassVar[bool] = True
    pictures_of: ClassVar[str] = ""

    def __init__(self, cfg: Any) -> None:
        self.notes: list[str] = []
        self.dataset_dir = data_folder(cfg, self.dataset_dir)
        self.image_dir = os.path.join(self.dataset_dir, self.image_dir)
        with collector_paused():
            split = self.read(cfg)
            self.check(split)
            train, val, test = (self.images(part) for part in self.select(cfg, split))
            super().__init__(train_x=train, val=val or None, test=test)

    def read(self, cfg: Any) -> Split:
        """Return all images of the data set, with paths relative to ``image_dir``."""
        raise NotImplementedError

    def check(self, split: Split) -> None:
        """Refuse wrong labels, paths outside the data folder and missing images."""
        check_split(split, self.dataset_dir)
        check_files(self.image_dir, (item for part in split for item in part))

    def select(self, cfg: Any, split: Split) -> Split:
        """Draw DATASET.NUM_SHOTS images per class, hold out DATASET.FOLD, keep the classes."""
        twice = same_in_a_prompt({label: name for _, label, name in split.train}.values())
        if twice:
            self.same_in_a_prompt(*twice)
        shots, seed = cfg.DATASET.NUM_SHOTS, cfg.SEED
        split = few_shot(split, shots, seed, sample_val=self.sample_val)
        if shots > 0 and seed >= 0:
            drawn = {"train": split.train} | ({"val": split.val} if self.sample_val else {})
            name = f"shot_{shots}-seed_{seed}.json"
            record_few_shot(Path(self.dataset_dir, "split_fewshot", name), drawn)
        elif shots > 0:
            self.notes.append("few-shot images drawn without a seed (SEED -1)")
        drawn_of = [len(images) for images in by_label(split.train).values()]
        if short := sum(count < shots for count in drawn_of):
            self.notes.append(
                f"{short} of {len(drawn_of)} classes have fewer training images than the {shots} "
                f"shots, the smallest {min(drawn_of)}"
            )
        split = hold_out(split, getattr(cfg.DATASET, "FOLD", ""))
        return subsample_classes(split, cfg.DATASET.SUBSAMPLE_CLASSES)

    def same_in_a_prompt(self, first: str, second: str) -> None:
        """Note two classes that nothing can tell apart; published lists of names have such."""
        self.notes.append(f"the classes {first!r} and {second!r} read the same in a prompt")

    def image_name(self, impath: str) -> str:
        """Return an image's name, the same in any data folder."""
        folder = self.pictures_of or os.path.basename(self.dataset_dir)
        return f"{folder}/{os.path.relpath(impath, self.image_dir)}"

    def images(self, items: list[Item]) -> list[Datum]:
        """Turn list entries into what the data loaders take."""
        prefix = os.path.join(self.image_dir, "")
        return [ListedImage(prefix + path, label, classname=name) for path, label, name in items]


class SplitFileDataset(FewShotDataset):
    """A data set whose published split file decides which image is in which list.

    Without that file a child's :meth:`new_split` is used only when DATASET.ALLOW_NEW_SPLIT asks
    for it: numbers on a split of one's own cannot be compared with published ones.
    """

    split_file: ClassVar[str]
    split_id: ClassVar[str]  # of the file on Google Drive to which CoOp's instructions point

    def read(self, cfg: Any) -> Split:
        """Read the published split file, or a new split where that is asked for."""
        published = Path(self.dataset_dir, self.split_file)
        if published.is_file():
            return read_split(published)
        if not getattr(cfg.DATASET, "ALLOW_NEW_SPLIT", False):
            raise UserError(
                f"{cfg.DATASET.NAME}: no split file {published}; download {self.split_file} from "
                f"https://drive.google.com/file/d/{self.split_id} (docs/datasets.md), or set "
                "DATASET.ALLOW_NEW_SPLIT True for a split of your own, whose results cannot be "
                "compared with published ones"
            )
        self.notes.append(f"new random split, not {self.split_file}: not comparable")
        # Another name, so that nobody takes it for the published file later on.
        own = published.with_name(self.split_file.replace("split_zhou", "split_new"))
        if own.is_file():
            return read_split(own)
        try:
            split = self.new_split()
        except LookupError as error:
            raise UserError(
                f"{cfg.DATASET.NAME}: the lists in {self.dataset_dir} do not fit together: "
                f"{error} is not among the classes"
            ) from error
        store(own, to_json(split._asdict()))
        return split

    def new_split(self) -> Split:
        """Make a split from the raw data; the same files always give the same split."""
        raise NotImplementedError


class ClassFolderDataset(SplitFileDataset):
    """A data set with one folder of images per class, in ASCII order of the folder names."""

    ignored: ClassVar[tuple[str, ...]] = ()
    renamed: ClassVar[dict[str, str]] = {}

    def new_split(self) -> Split:
        """Split each class into 50 % training, 20 % validation and 30 % test images."""
        folders = [f for f in list_folders(self.image_dir) if f not in self.ignored]
        return split_folders(self.image_dir, folders, self.dataset_dir, self.renamed)


def split_folders(
    image_dir: str, folders: Sequence[str], cache_dir: str, renamed: Mapping[str, str]
) -> Split:
    """Split each class folder into 50 % training, 20 % validation and 30 % test images."""
    names = [renamed.get(folder, folder) for folder in folders]
    (items,) = list_items(image_dir, [folders], names, cache_dir)
    for label, images in by_label(items).items():
        if len(images) < FEWEST:
            raise UserError(
                f"{os.path.join(image_dir, folders[label])}: only {len(images)} images, too few "
                "for a split into training, validation and test images; see docs/datasets.md"
            )
    return split_by_class(items, 0.5, 0.2)
