"""Seeds, files, downloads and a description of the machine."""

from __future__ import annotations

import json
import os
import platform
import random
import urllib.request
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

from coop_cmp.files import atomic_write

from .images import read_image
from .registry import check_availability, get_most_similar_str_to_a_from_b

__all__ = [
    "check_availability",
    "check_isfile",
    "collect_env_info",
    "download_url",
    "get_most_similar_str_to_a_from_b",
    "listdir_nohidden",
    "mkdir_if_missing",
    "read_image",
    "read_json",
    "set_random_seed",
    "tolist_if_not",
    "write_json",
]


def set_random_seed(seed: int) -> None:
    """Seed python, numpy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def collect_env_info() -> str:
    """Versions and device, one per line. No sub-processes: it takes milliseconds."""
    # Not platform.platform(), which asks `uname` in a process of its own.
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    lines = [f"Python: {platform.python_version()} ({system})"]
    for name in ("torch", "torchvision", "numpy", "pillow"):
        try:
            lines.append(f"{name}: {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name}: not installed")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        lines.append(f"device: CUDA {torch.version.cuda}, {', '.join(names)}")
    else:
        lines.append(f"device: CPU, {torch.get_num_threads()} threads")
    return "\n".join(lines)


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
