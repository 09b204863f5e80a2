"""Lists of labelled images: reading, checking and storing a split.

An image is a tuple ``(path relative to the image folder, label, class name)``, exactly as the
split files of the CoOp codebase store it; nothing here opens an image.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from coop_cmp.errors import CONTROL, UserError
from coop_cmp.files import read_file

Item = tuple[str, int, str]
PARTS = ("train", "val", "test")
NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


class Split(NamedTuple):
    """The three lists of a data set."""

    train: list[Item]
    val: list[Item]
    test: list[Item]


def read_split(path: str | os.PathLike[str]) -> Split:
    """Read ``{"train": [[path, label, class name], ...], "val": [...], "test": [...]}``."""
    try:
        content = json.loads(read_file(path).decode("utf-8"), object_pairs_hook=_unique)
        return Split(*([_item(*item) for item in content[part]] for part in PARTS))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(
            f"{path} is not a split file (train, val and test lists of [path, label, class name]): "
            f"{type(error).__name__}: {error}; download it again, see docs/datasets.md"
        ) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of JSON; a key that stands in it twice, of which the last would count, is none."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"one of its keys is given twice: {', '.join(key for key, _ in pairs)}")
    return found


def _item(path: str, label: int, name: str) -> Item:
    if not (isinstance(path, str) and isinstance(name, str)):
        raise TypeError(f"path and name must be text, got {path!r} and {name!r}")
    return path, label, name


def to_json(lists: Mapping[str, list[Item]]) -> str:
    """The text of a split file, one image per line."""
    parts = (
        f'"{part}": [\n' + ",\n".join(json.dumps(item) for item in items) + "\n]"
        for part, items in lists.items()
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


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
            check_name(path, source)
            check_name(name, source)
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
    for part in ("train", "test"):
        if not getattr(split, part):
            raise UserError(f"{source}: the {part} list is empty")
    absent = max(names) + 1 - len(trained)
    if absent:
        first = next(label for label in range(len(trained) + 1) if label not in trained)
        raise UserError(
            f"{source}: labels must be 0 to {max(names)}, each with training images, but "
            f"{absent} of them have none, the first is {first} ({names.get(first, 'no name')})"
        )


def check_name(name: str, source: str | os.PathLike[str]) -> None:
    """Refuse a name that other programs, records or prompts cannot hold.

    Args:
        name: of a file, a folder or a class.
        source: where it is, named in the message.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{os.fspath(source)!a}: the name {name!a} is not UTF-8; rename it"
        ) from None
    if CONTROL.search(name) or not name.strip():
        raise UserError(f"{source}: {name!r} is no name; rename it")


def file_names(folder: str) -> set[str]:
    """Names of the files in a folder; a pipe or a device, which could block a reader, is none."""
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.is_file()}


def check_files(image_dir: str, items: Iterable[Item]) -> None:
    """Refuse a list that names what is no file; each folder is listed only once."""
    listings: dict[str, set[str]] = {}
    missing = []
    for path, _, _ in items:
        folder, name = os.path.split(path)
        if folder not in listings:
            try:
                listings[folder] = file_names(os.path.join(image_dir, folder))
            except OSError as error:
                if error.errno not in NO_FOLDER:
                    raise
                listings[folder] = set()
        if name not in listings[folder]:
            missing.append(path)
    if missing:
        raise UserError(
            f"{len(missing)} images of the split are missing below {image_dir}, the first is "
            f"{missing[0]!r}; unpack the archive again, see docs/datasets.md"
        )


def same_in_a_prompt(classnames: Iterable[str]) -> tuple[str, str] | None:
    """The first two class names of which prompts make the same words."""
    seen: dict[str, str] = {}
    for name in classnames:
        words = " ".join(name.replace("_", " ").lower().split())  # as CLIP's tokeniser reads it
        if words in seen:
            return seen[words], name
        seen[words] = name
    return None
