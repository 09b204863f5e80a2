"""Paths, JSON, downloads, and files that are either whole or not there."""

from __future__ import annotations

import glob
import json
import os
import platform
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO


def mkdir_if_missing(dirname: str) -> None:
    """Make a directory and its parents."""
    os.makedirs(dirname, exist_ok=True)


def check_isfile(fpath: str) -> bool:
    """Whether ``fpath`` is a file; warns if not."""
    found = os.path.isfile(fpath)
    if not found:
        warnings.warn(f'No file found at "{fpath}"', stacklevel=2)
    return found


def listdir_nohidden(path: str, sort: bool = False) -> list[str]:
    """Names in a directory that do not start with a dot."""
    names = [name for name in os.listdir(path) if not name.startswith(".")]
    return sorted(names) if sort else names


@contextmanager
def atomic_write(fpath: str) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``fpath`` only if the block ends without an error.

    The data is on disk before the rename: after a crash ``fpath`` is the old file or the new one.
    What a killed process left of it is removed.

    Raises:
        OSError: It cannot be written; the error names ``fpath``.
    """
    mkdir_if_missing(os.path.dirname(os.path.abspath(fpath)))
    head, tail = os.path.split(fpath)
    temporary = os.path.join(head, f".{tail}.{platform.node()}.{os.getpid()}.tmp")
    remove_leftovers(head, tail)
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, fpath)
    except OSError as error:
        if error.filename in (None, temporary):  # a full disk names nothing
            raise OSError(error.errno, error.strerror or str(error), fpath) from error
        raise
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def remove_leftovers(directory: str, name: str = "") -> None:
    """Delete what killed processes of this machine left of a file, or of all in a directory."""
    beginning = f".{glob.escape(name) or '*'}.{glob.escape(platform.node())}."
    for leftover in glob.glob(os.path.join(glob.escape(directory), f"{beginning}*.tmp")):
        process = leftover.removesuffix(".tmp").rpartition(".")[2]
        if process.isdigit() and os.name == "posix":
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                os.remove(leftover)
            except (OSError, OverflowError):
                continue


def read_json(fpath: str) -> Any:
    """Read a JSON file."""
    with open(fpath, encoding="utf-8") as file:
        return json.load(file)


def write_json(obj: Any, fpath: str) -> None:
    """Write a JSON file (indented by 4), making its directory if need be."""
    text = json.dumps(obj, indent=4, separators=(",", ": "))
    with atomic_write(fpath) as file:
        file.write(text.encode())


def tolist_if_not(x: Any) -> list[Any]:
    """Return ``x`` if it is a list, else ``[x]``."""
    return x if isinstance(x, list) else [x]


def download_url(url: str, dst: str) -> None:
    """Download ``url`` to the file ``dst``, which appears only when it is complete."""
    print(f'* url="{url}"')
    print(f'* destination="{dst}"')
    with urllib.request.urlopen(url) as response, atomic_write(dst) as file:
        while chunk := response.read(1 << 20):
            file.write(chunk)
