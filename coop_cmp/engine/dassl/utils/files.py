"""Paths, JSON and downloads."""

from __future__ import annotations

import json
import os
import urllib.request
import warnings
from typing import Any

from coop_cmp.files import atomic_write


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
