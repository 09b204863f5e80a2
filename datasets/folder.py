"""A user's own images: class folders, with the class names and the prompt in the yaml file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from coop_cmp.errors import UserError

from .base import FewShotDataset, split_folders
from .files import list_folders, list_images, store
from .splits import PARTS, Split, check_files, check_split, read_split, to_json

SPLIT_FILE = "split.json"
WRITTEN = "split_fewshot"  # the folder that runs write, among the class folders


@DATASET_REGISTRY.register()
class ImageFolder(FewShotDataset):
    """DATASET.ROOT holds ``train/<class>/``, ``test/<class>/`` and perhaps ``val/<class>/``, or
    ``<class>/`` folders and a ``split.json`` in the format of the CoOp codebase.

    Labels follow the ASCII order of the class folders; DATASET.CLASSNAMES names them in that order,
    otherwise they are called like the folders.

    Attributes:
        digest: of all images and the split; other images are another data set.
    """

    digest: str

    def read(self, cfg: Any) -> Split:
        """Read ``split.json``, list the folders, or split them where that is asked for."""
        split = read_folder(self.dataset_dir, getattr(cfg.DATASET, "ALLOW_NEW_SPLIT", False))
        self.digest = split_digest(self.dataset_dir, split)
        if (known := getattr(cfg.DATASET, "CONTENT", "")) and known != self.digest:
            raise UserError(
                f"{self.dataset_dir}: images or split have changed since DATASET.CONTENT was "
                "written; give the folder instead of its name, and its runs start again"
            )
        file = Path(self.dataset_dir, SPLIT_FILE)
        if not os.path.lexists(file) and not has_parts(self.dataset_dir):
            store(file, to_json(split._asdict()))
        return split

    def check(self, split: Split) -> None:
        """Nothing is left to check: :func:`read_folder` has done it."""

    def select(self, cfg: Any, split: Split) -> Split:
        """Name the classes, then choose images as everywhere."""
        names = tuple(getattr(cfg.DATASET, "CLASSNAMES", ()))
        count = len({label for _, label, _ in split.train})
        if names and len(names) != count:
            raise UserError(
                f"DATASET.CLASSNAMES must name the {count} classes of {self.dataset_dir}, "
                f"got {len(names)} names"
            )
        if names:
            split = Split(*([(path, y, names[y]) for path, y, _ in items] for items in split))
        return super().select(cfg, split)

    def same_in_a_prompt(self, first: str, second: str) -> None:
        """Refuse them: one's own classes can be named apart."""
        raise UserError(
            f"{self.dataset_dir}: the classes {first!r} and {second!r} read the same in a prompt; "
            "name the classes apart with DATASET.CLASSNAMES"
        )

    def image_name(self, impath: str) -> str:
        """Return an image's name: the same file in another folder is another image."""
        return f"{self.digest}/{os.path.relpath(impath, self.image_dir)}"


def folder_digest(folder: str, new_split: bool) -> str:
    """Return the digest of the images and the split of a folder; no ``split.json`` is made."""
    return split_digest(folder, read_folder(folder, new_split))


def split_digest(folder: str, split: Split) -> str:
    """Return a digest of the images of a split: path, size, label and list of each."""
    digest = hashlib.sha256()
    for part, items in zip(PARTS, split, strict=True):
        for path, label, name in items:
            size = os.path.getsize(os.path.join(folder, path))
            digest.update(f"{part}\0{path}\0{size}\0{label}\0{name}\n".encode())
    return digest.hexdigest()[:16]


def has_parts(folder: str) -> bool:
    """Whether the images lie in ``train/`` and ``test/``; one of them alone is refused."""
    found = [part for part in ("train", "test") if Path(folder, part).is_dir()]
    if len(found) == 1:
        raise UserError(f"{folder} has {found[0]}/ alone; train/ and test/ are both needed")
    return bool(found)


def read_folder(folder: str, new_split: bool) -> Split:
    """Return all images of a folder by ``split.json``, by ``train/`` and ``test/``, or split anew.

    Args:
        folder: DATASET.ROOT.
        new_split: Whether class folders without a split may be split.

    Raises:
        UserError: Images are missing, or no split can be found.
    """
    file = Path(folder, SPLIT_FILE)
    if os.path.lexists(file):
        if not file.is_file():  # such as a link to a disk that is not there
            raise UserError(f"{file}: not a file; without it the images would be split anew")
        split = read_split(file)
        try:
            check_split(split, folder)
            check_files(folder, (item for part in split for item in part))
        except UserError as error:
            raise UserError(f"{error}; without {file} the images would be split anew") from error
        return split
    if has_parts(folder):
        split = list_parts(folder)
    elif new_split:
        classes = [name for name in list_folders(folder) if name != WRITTEN]
        split = split_folders(folder, classes, folder, {})
    else:
        raise UserError(
            f"{folder} needs folders train/ and test/ (and perhaps val/), or a file split.json; "
            "DATASET.ALLOW_NEW_SPLIT True makes split.json from class folders"
        )
    check_split(split, folder)
    return split


def list_parts(folder: str) -> Split:
    """List the class folders in ``train/``, ``val/`` and ``test/``."""
    places = {part: Path(folder, part) for part in PARTS}
    folders = {part: list_folders(p) if p.is_dir() else [] for part, p in places.items()}
    label = {name: index for index, name in enumerate(folders["train"])}
    for part, names in folders.items():
        if strange := sorted(set(names) - set(label)):
            raise UserError(f"{folder}/{part}: no class {strange[0]!r} in train/")
    paths = [f"{part}/{name}" for part in PARTS for name in folders[part]]
    files = list_images(folder, paths, folder)
    return Split(
        *(
            [
                (f"{part}/{name}/{file}", label[name], name)
                for name in folders[part]
                for file in files[f"{part}/{name}"]
            ]
            for part in PARTS
        )
    )
