"""CIFAR-10 as it is published, a tar archive of pixel rows, to one PNG file per image."""

from __future__ import annotations

import io
import pickle
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from coop_cmp.errors import UserError

from ..cifar10 import NAMES

MOST_BYTES = 2**26  # twice what a batch has
BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}


def prepare_cifar10(archive: Path, root: Path) -> str:
    """Write the images of cifar-10-python.tar.gz or cifar-10-binary.tar.gz as PNG files."""
    target = root / "cifar10"
    if target.exists():
        raise UserError(f"{target} is already there; remove it to make it again")
    root.mkdir(parents=True, exist_ok=True)
    # The folder appears only when it is complete: a half-written set would look like a whole one.
    with tempfile.TemporaryDirectory(dir=root, prefix=".cifar10-") as scratch:
        made = Path(scratch, "cifar10")
        for part in BATCHES:
            for name in NAMES:
                (made / part / name).mkdir(parents=True)
            for number, (image, label) in enumerate(read_images(archive, part)):
                picture = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
                picture.save(made / part / NAMES[label] / f"{number:05d}.png")
        made.rename(target)
    return f"wrote {target}"


def read_images(archive: Path, part: str) -> Iterator[tuple[np.ndarray, int]]:
    """Images [3, 32, 32] and labels of one part, in the order of the archive."""
    if not archive.is_file():
        raise UserError(f"{archive} is no archive")
    try:
        with tarfile.open(archive) as tar:
            files = {Path(member.name).name: member for member in tar if member.isfile()}
            for batch in BATCHES[part]:
                name = batch if batch in files else f"{batch}.bin"
                if files[name].size > MOST_BYTES:
                    raise ValueError(f"{name} has {files[name].size:,} bytes")
                stream = tar.extractfile(files[name])
                assert stream is not None  # only plain files were kept
                read = binary_rows if name.endswith(".bin") else python_rows
                pixels, labels = read(stream.read())
                if not set(labels) <= set(range(len(NAMES))):
                    raise ValueError(f"{name} has labels beyond the ten classes")
                yield from zip(pixels.reshape(-1, 3, 32, 32), labels, strict=True)
    except KeyError as error:
        raise UserError(f"{archive} has no {error}: not CIFAR-10's python or binary one") from error
    except Exception as error:  # a damaged archive raises nearly anything
        raise UserError(f"{archive} cannot be read: {error}; download it again") from error


def binary_rows(content: bytes) -> tuple[np.ndarray, list[int]]:
    """Pixels [N, 3072] and labels of a binary batch, which has the label before the pixels."""
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:], rows[:, 0].tolist()


def python_rows(content: bytes) -> tuple[np.ndarray, list[int]]:
    """Pixels [N, 3072] and labels of a Python batch."""
    batch = BatchReader(io.BytesIO(content), encoding="bytes").load()
    _, shape, _, column_major, pixels = batch[b"data"].state
    flat = np.frombuffer(pixels, np.uint8)
    rows = flat.reshape(shape[::-1]).T if column_major else flat.reshape(shape)
    return rows, batch[b"labels"]


class StateOnly:
    """Stands for NumPy's objects while a batch is read: keeps their state and runs nothing."""

    def __init__(self, *args: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state


class BatchReader(pickle.Unpickler):
    """Reads the Python batches, which are pickles, without loading anything that they name."""

    def find_class(self, module: str, name: str) -> Any:
        """Allow the three names that CIFAR-10 needs, and not even those for real."""
        if module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype"):
            return StateOnly
        raise pickle.UnpicklingError(f"it wants {module}.{name}, which CIFAR-10 does not: refused")
