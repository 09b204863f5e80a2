"""Folders of images, listed once: the list of a million files is read back in a second."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write, read_file

from .splits import Item, check_name, file_names

CACHE = "file_list.json"
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
ENDLESS = (OverflowError, RecursionError)  # of JSON: 1e999, and depth
NO_FILES = {"", ".", ".."}
SETTLED_NS = 2_000_000_000  # the coarsest time stamp of a common file system


def list_folders(parent: str | os.PathLike[str]) -> list[str]:
    """Names of the class folders in ``parent`` in ASCII order, hidden ones left out."""
    try:
        with os.scandir(parent) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"no folder {parent}; see docs/datasets.md for the layout") from None
    if not names:
        raise UserError(f"no class folders in {parent}; see docs/datasets.md for the layout")
    for name in names:
        check_name(name, parent)
    return names


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The non-empty lines of a text file that belongs to a data set."""
    try:
        text = read_file(path).decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"no file {path}; see docs/datasets.md for where to get it") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file in UTF-8 ({error.reason})") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_matlab(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The variables of a MATLAB file, lists without their empty dimensions."""
    from scipy.io import loadmat

    if not os.path.isfile(path):
        raise UserError(f"no file {path}; see docs/datasets.md for where to get it")
    try:
        content = loadmat(path, squeeze_me=True)
    except Exception as error:  # a damaged file raises nearly anything
        raise UserError(f"{path}: not a MATLAB file ({error}); download it again") from error
    return {key: np.atleast_1d(value) for key, value in content.items() if key[0] != "_"}


def list_images(
    image_dir: str | os.PathLike[str], folders: Iterable[str], cache_dir: str | os.PathLike[str]
) -> dict[str, list[str]]:
    """List the images in each of ``folders``, sorted, through a cache in ``cache_dir``.

    A folder is listed again only when its time stamp has changed. The cache is JSON; the file names
    of a folder are one string, joined by "/", which no file name contains.
    """
    cache_path = Path(cache_dir, CACHE)
    known = _read_cache(cache_path)
    fresh: dict[str, tuple[int, str]] = {}
    listed: dict[str, list[str]] = {}
    for folder in folders:
        path = os.path.join(image_dir, folder)
        stamp = _stamp(path)
        names = known[folder][1] if known.get(folder, (None,))[0] == stamp else _scan(path)
        if not names:
            raise UserError(f"empty class: no image in {path}; see docs/datasets.md for the layout")
        listed[folder] = names.split("/")
        # A folder that changed a moment ago may change again without a new time stamp.
        if time.time_ns() - stamp > SETTLED_NS:
            fresh[folder] = (stamp, names)
    if fresh != known:
        store(cache_path, json.dumps({"folders": fresh}))
    return listed


def list_items(
    image_dir: str | os.PathLike[str],
    parts: Sequence[Sequence[str]],
    names: Sequence[str],
    cache_dir: str | os.PathLike[str],
) -> list[list[Item]]:
    """List the images of each part, whose folders are those of the classes 0, 1, ... in order."""
    files = list_images(image_dir, chain(*parts), cache_dir)
    return [
        [
            (f"{folder}/{file}", label, names[label])
            for label, folder in enumerate(folders)
            for file in files[folder]
        ]
        for folders in parts
    ]


def _stamp(path: str) -> int:
    """The time at which a folder changed, in nanoseconds."""
    try:
        return os.stat(os.path.join(path, "")).st_mtime_ns  # the slash is for folders alone
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"no folder {path}; see docs/datasets.md for the layout") from None


def _scan(path: str) -> str:
    names = (n for n in file_names(path) if not n.startswith("."))
    images = sorted(n for n in names if n.lower().endswith(IMAGE_SUFFIXES))
    for name in images:
        check_name(name, path)
    return "/".join(images)


def _read_cache(path: Path) -> dict[str, tuple[int, str]]:
    """What the cache holds; a torn or foreign file, or none, counts as an empty one."""
    try:
        folders = json.loads(read_file(path))["folders"]
        known = {str(f): (int(stamp), str(names)) for f, (stamp, names) in folders.items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, *ENDLESS):
        return {}
    return {f: entry for f, entry in known.items() if NO_FILES.isdisjoint(entry[1].split("/"))}


def store(path: Path, text: str) -> None:
    """Write a file beside the data; a folder that cannot be written to costs one line."""
    try:
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        print(f"Not stored: {path} ({error.strerror}); going on without it")
