"""A user's own images: class folders, with the class names and the prompt in the yaml file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from coop_cmp.errors import UserError

from .base import ClassFolderDataset
from .files import list_folders, list_images, store
from .splits import PARTS, Split, check_split, read_split, to_json


@DATASET_REGISTRY.register()
class ImageFolder(ClassFolderDataset):
    """DATASET.ROOT holds ``train/<class>/``, ``test/<class>/`` and perhaps ``val/<class>/``, or
    ``<class>/`` folders and a ``split.json`` in the format of the CoOp codebase.

    Labels follow the ASCII order of the class folders; DATASET.CLASSNAMES names them in that order,
    otherwise they are called like the folders.
    """

    split_file = "split.json"
    ignored = ("split_fewshot",)
    _listed = False

    def read(self, cfg: Any) -> Split:
        """Read ``split.json``, list the folders, or split them where that is asked for."""
        split_path = Path(self.dataset_dir, self.split_file)
        if split_path.is_file():
            return read_split(split_path)
        if all(Path(self.dataset_dir, part).is_dir() for part in ("train", "test")):
            return self._list_parts()
        if not getattr(cfg.DATASET, "ALLOW_NEW_SPLIT", False):
            raise UserError(
                f"{self.dataset_dir} needs folders train/ and test/ (and perhaps val/), or a file "
                "split.json; DATASET.ALLOW_NEW_SPLIT True makes split.json from class folders"
            )
        split = self.new_split()
        store(split_path, to_json(split._asdict()))
        return split

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

    def check(self, split: Split) -> None:
        """Refuse what is wrong in the lists; files that were just listed are there."""
        if self._listed:
            check_split(split, self.dataset_dir)
            return
        try:
            super().check(split)
        except UserError as error:
            file = Path(self.dataset_dir, self.split_file)
            raise UserError(f"{error}; without {file} the images would be split anew") from error

    def _list_parts(self) -> Split:
        self._listed = True
        classes = list_folders(Path(self.dataset_dir, "train"))
        folders = {"train": classes, "val": [], "test": []}
        for part in ("val", "test"):
            if Path(self.dataset_dir, part).is_dir():
                folders[part] = list_folders(Path(self.dataset_dir, part))
            strange = sorted(set(folders[part]) - set(classes))
            if strange:
                raise UserError(f"{self.dataset_dir}/{part}: no class {strange[0]!r} in train/")
        paths = [f"{part}/{folder}" for part in PARTS for folder in folders[part]]
        files = list_images(self.image_dir, paths, self.dataset_dir)
        label = {folder: index for index, folder in enumerate(classes)}
        return Split(
            *(
                [
                    (f"{part}/{folder}/{name}", label[folder], folder)
                    for folder in folders[part]
                    for name in files[f"{part}/{folder}"]
                ]
                for part in PARTS
            )
        )
