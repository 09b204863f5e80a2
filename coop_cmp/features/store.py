"""The feature store: image features that depend on nothing learned, computed once for all runs.

A file is named by a digest of all that its features depend on, and holds that digest and a checksum
of its data. What does not match is computed again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write

AUTO = "auto"
SUFFIX = ".safetensors"
KEY_DIGITS = 32


def store_folder(setting: str) -> Path:
    """Return the folder that MODEL.FEATURE_STORE names; ``auto`` is in the user's cache."""
    if setting != AUTO:
        return Path(setting).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "coop_cmp" / "features"


class Busy(Exception):
    """Another run is computing what was asked for."""


class FeatureStore:
    """Tensors on disk under the digest of their description.

    Args:
        folder: Where the files are. Any number of runs may use it at once.
        budget: Bytes of files, beyond which the least recently used are evicted; 0: no limit.
    """

    def __init__(self, folder: str | Path, budget: int = 0) -> None:
        self.folder = Path(folder)
        self.budget = budget

    def fetch(
        self,
        description: Mapping[str, Any],
        compute: Callable[[], Tensor],
        shape: tuple[int, int | None] | None = None,
        wait: bool = True,
    ) -> Tensor:
        """Return the tensor of a description; compute and store it if it is not there.

        While one run computes, others that need the same tensor wait for it. A folder that cannot
        be written costs a line in the log, not the run.

        Args:
            description: All that the tensor depends on, as JSON. ``about`` is for people: it is
                listed with the file and no part of the digest.
            compute: Makes the tensor (float32).
            shape: Rows and columns that it must have; None is any number of columns.
            wait: Whether to wait for another run that computes the tensor.

        Returns:
            The tensor, memory-mapped if it was on disk.

        Raises:
            Busy: Another run computes it, and ``wait`` is False.
        """
        about = description.get("about", "")
        key = digest({name: value for name, value in description.items() if name != "about"})
        path = self.folder / f"{key}{SUFFIX}"
        problem = folder_problem(self.folder)
        if problem:
            print(f"Feature store: {self.folder} is not used: {problem}")
            return compute()
        tensor, _ = self.read(path, shape)
        if tensor is None:
            with _locked(path.with_suffix(".lock"), wait):
                # Another run may have made it in the meantime.
                tensor, problem = self.read(path, shape)
                if problem:
                    print(f"Feature store: {path} is not used, but made anew: {problem}")
                if tensor is None:
                    tensor = compute()
                    self._write(path, tensor, about)
                    return tensor
        print(f"Feature store: read {about} from {path}")
        with suppress(OSError):
            os.utime(path)  # pruning goes by the time of the last use
        return tensor

    def read(
        self, path: Path, shape: tuple[int, int | None] | None = None
    ) -> tuple[Tensor | None, str]:
        """Return the tensor of a file; None with the reason if it is wrong, without if missing."""
        if not os.path.isfile(path):  # also False where permission is denied
            return None, ""
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                tensor = file.get_tensor("features")
        except (OSError, SafetensorError, RuntimeError) as error:
            return None, str(error)
        if metadata.get("key") != path.stem:
            return None, "it was made for something else"
        if metadata.get("checksum") != checksum(tensor):
            return None, "its checksum is wrong"
        problem = tensor_problem(tensor, shape)
        return (None, problem) if problem else (tensor, "")

    def _write(self, path: Path, tensor: Tensor, about: str) -> None:
        metadata = {"key": path.stem, "checksum": checksum(tensor), "about": about}
        try:
            _make_folder(self.folder)
            with atomic_write(path) as file:
                file.write(save({"features": tensor.contiguous()}, metadata))
        except OSError as error:
            print(
                f"Feature store: {path} cannot be written ({error.strerror or error}); "
                "going on without it"
            )
        else:
            print(f"Feature store: kept {about} in {path}")
            if self.budget:
                self._shrink(keep=path)

    def _shrink(self, keep: Path) -> None:
        """Evict the least recently used files until the budget holds; never the file to keep."""
        entries = self.entries()
        total = sum(entry["bytes"] for entry in entries)
        for entry in reversed(entries):
            if total <= self.budget or entry["path"] == keep:
                return
            entry["path"].unlink(missing_ok=True)
            total -= entry["bytes"]

    def entries(self) -> list[dict[str, Any]]:
        """Return path, about, bytes and days since the last use of each file, last used first."""
        found = []
        for path in self.folder.rglob(f"*{SUFFIX}"):
            try:
                with safe_open(path, "pt") as file:
                    metadata = file.metadata() or {}
            except (OSError, SafetensorError, RuntimeError):
                continue
            if metadata.get("key") != path.stem:  # somebody else's
                continue
            about = metadata.get("about", "")
            with suppress(FileNotFoundError):  # pruned in the meantime
                status = path.stat()
                days = (time.time() - status.st_mtime) / 86400
                found.append({"path": path, "about": about, "bytes": status.st_size, "days": days})
        return sorted(found, key=lambda entry: entry["days"])

    def prune(self, days: float) -> list[dict[str, Any]]:
        """Delete files that were not used for some days (0: all), and what killed runs left.

        Files that the store did not make are never touched.
        """
        if not days >= 0:
            raise UserError(f"--prune takes a number of days from 0, got {days}")
        old = [entry for entry in self.entries() if entry["days"] >= days or not days]
        for entry in old:
            entry["path"].unlink(missing_ok=True)
        key = "[0-9a-f]" * KEY_DIGITS
        for path in (
            *self.folder.rglob(f"{key}.lock"),
            *self.folder.rglob(f".{key}{SUFFIX}.*.tmp"),
        ):
            with suppress(FileNotFoundError):  # its run has just ended
                if time.time() - path.stat().st_mtime > 86400:
                    path.unlink()
        return old


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """Hold the lock of a file; where files cannot be locked, go on without.

    Raises:
        Busy: Another process holds the lock, and ``wait`` is False.
    """
    lock = None
    with suppress(OSError):
        lock = _lock(path, wait)
    if lock is None:
        yield
        return
    with lock:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            fcntl.flock(lock, fcntl.LOCK_UN)  # workers that were started meanwhile hold it too


def _lock(path: Path, wait: bool) -> BinaryIO:
    """Open and lock a file; OSError if that is not possible."""
    _make_folder(path.parent)
    while True:
        lock = open(path, "ab")  # noqa: SIM115 - stays open as long as the lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not wait:
                lock.close()
                raise Busy(path.stem) from error
            print(f"Feature store: waiting for another run that makes {path.stem}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        lock.close()  # the run before removed this file, and the next one may lock a new one


def _make_folder(folder: Path) -> None:
    """Make a folder that only the user can enter, unless it is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def folder_problem(folder: Path) -> str:
    """Say why a folder is not private to the user; empty if it is."""
    try:
        status = folder.stat()
    except OSError:
        return ""
    if status.st_uid != os.getuid():
        return "it belongs to another user; name a folder of your own (MODEL.FEATURE_STORE)"
    if status.st_mode & 0o022:
        return f"others can write to it; close it with: chmod 700 {folder}"
    return ""


def tensor_problem(tensor: Tensor, shape: tuple[int, int | None] | None) -> str:
    """Say why a tensor [..., columns] is not image features of this shape; empty if it is."""
    if tensor.dtype != torch.float32:
        return f"it holds {tensor.dtype}, not single precision"
    if shape is not None:
        *before, last = tensor.shape or (0,)
        rows, columns = shape
        if not before or math.prod(before) != rows or columns not in (None, last):
            return f"it holds {list(tensor.shape)}, not {list(shape)} numbers"
    if not tensor.isfinite().all():
        return "it holds numbers that are not finite"
    if shape is not None and not tensor.any(dim=-1).all():
        return "it holds features that are zero"
    return ""


def digest(description: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON description, shortened to 32 hexadecimal digits."""
    text = json.dumps(description, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def checksum(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's type, shape and bytes."""
    state = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)}".encode())
    # Bytes of any type of number, bfloat16 included, which numpy lacks.
    data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    state.update(data.numpy().data)
    return state.hexdigest()
