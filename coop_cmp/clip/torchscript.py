"""The tensors of a TorchScript archive, such as OpenAI's CLIP weights, without running its code.

``torch.jit.load`` compiles the program in the archive and runs parts of it. Here only its pickle of
the module tree is read, by an unpickler that knows tensors and empty shells of modules, and the
lists of parameter names from its source, as text.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
MAX_TEXT = 64 << 20  # bytes of the pickle or of a source file
MAX_ENTRIES = 100_000  # of a state dict, as shared modules could multiply without end
_STATE = re.compile(
    r"^class (\w+)\(Module\):\n  __parameters__ = \[(.*)\]\n(?:  __buffers__ = \[(.*)\]\n)?", re.M
)


def is_torchscript(path: str | Path) -> bool:
    """Whether a file is an archive that ``torch.jit.save`` made."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def read_torchscript(path: str | Path) -> dict[str, Tensor]:
    """The state dict of an archive.

    Raises:
        ValueError: The archive holds something else than modules and tensors, or is broken.
    """
    with zipfile.ZipFile(path) as archive:
        reader = _Archive(archive)
        try:
            root = _Unpickler(reader).load()
        except (pickle.UnpicklingError, EOFError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"its module tree cannot be read ({error})") from error
        if not isinstance(root, _Module):
            raise ValueError("it holds no module")
        state: dict[str, Tensor] = {}
        for name, tensor in _state(root, reader.state_names(), ()):
            state[name] = tensor
            if len(state) > MAX_ENTRIES:
                raise ValueError(f"it holds more than {MAX_ENTRIES} tensors")
        return state


class _Archive:
    """The files of an archive, each read whole and none larger than the archive is."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        roots = {name.split("/", 1)[0] for name in archive.namelist()}
        if len(roots) != 1:
            raise ValueError("it has more than one folder at its top")
        self.root = roots.pop()
        self._storages: dict[str, Tensor] = {}
        if self._has("byteorder") and self.text("byteorder").strip() != "little":
            raise ValueError("its numbers are not little-endian")

    def _has(self, name: str) -> bool:
        return f"{self.root}/{name}" in self.archive.namelist()

    def read(self, name: str) -> bytes:
        info = self.archive.getinfo(f"{self.root}/{name}")
        if info.file_size > MAX_TEXT:
            raise ValueError(f"{name} is larger than {MAX_TEXT >> 20} MB")
        return self.archive.read(info)

    def text(self, name: str) -> str:
        return self.read(name).decode()

    def storage(self, key: str, dtype: torch.dtype, count: int) -> Tensor:
        """The numbers [count] of a record."""
        if key not in self._storages:
            info = self.archive.getinfo(f"{self.root}/data/{key}")
            if info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"data/{key} is compressed")
            if info.file_size != count * dtype.itemsize:
                raise ValueError(f"data/{key} has {info.file_size} bytes, not {count} x {dtype}")
            content = bytearray(self.archive.read(info))
            empty = torch.empty(0, dtype=dtype)
            self._storages[key] = torch.frombuffer(content, dtype=dtype) if count else empty
        found = self._storages[key]
        if found.dtype != dtype or len(found) != count:
            raise ValueError(f"data/{key} is used as {found.dtype} and as {dtype}")
        return found

    def state_names(self) -> dict[str, frozenset[str] | None]:
        """Names of parameters and buffers by class; None where the source does not tell."""
        names: dict[str, frozenset[str] | None] = {}
        for file in self.archive.namelist():
            inside = file.removeprefix(f"{self.root}/")
            if not inside.startswith("code/") or not inside.endswith(".py"):
                continue
            module = inside.removeprefix("code/").removesuffix(".py").replace("/", ".")
            for found in _STATE.finditer(self.text(inside)):
                name, parameters, buffers = found.groups()
                listed = re.findall(r'"([^"]*)"', f"{parameters}{buffers}")
                names[f"{module}.{name}"] = None if buffers is None else frozenset(listed)
        return names


class _Module:
    """A module of which only the attributes are known."""

    path = ""
    attributes: dict[str, Any]

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise ValueError(f"{self.path} has a state of its own making")
        self.attributes = state


class _Call:
    """A function for the unpickler that a hostile pickle cannot set attributes of."""

    __slots__ = ("_function",)
    _function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        raise pickle.UnpicklingError("a function cannot be changed")


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Tensor:
    numbers = (offset, *size, *stride)
    if not isinstance(storage, Tensor) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError("a tensor without a storage or with a negative size")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if math.prod(size) > len(storage) or (math.prod(size) and last >= len(storage)):
        raise ValueError(f"a tensor of {list(size)} reaches beyond its {len(storage)} numbers")
    return storage.as_strided(size, stride, offset)


def _same(value: Any, *_: Any) -> Any:
    return value


_KNOWN: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Call(_tensor),
    ("collections", "OrderedDict"): OrderedDict,
    **{
        ("torch.jit._pickle", name): _Call(_same)
        for name in ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist")
    },
    ("torch.jit._pickle", "restore_type_tag"): _Call(_same),
}


class _Unpickler(pickle.Unpickler):
    """Builds tensors, containers and shells of modules; everything else is refused."""

    def __init__(self, reader: _Archive) -> None:
        super().__init__(io.BytesIO(reader.read("data.pkl")))
        self.reader = reader

    def find_class(self, module: str, name: str) -> Any:
        if module == "__torch__" or module.startswith("__torch__."):
            return type("Module", (_Module,), {"path": f"{module}.{name}"})
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if (module, name) in _KNOWN:
            return _KNOWN[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no part of a model")

    def persistent_load(self, pid: Any) -> Tensor:
        kind, dtype, key, _device, count = pid
        if kind != "storage" or dtype not in DTYPES.values() or type(count) is not int:
            raise pickle.UnpicklingError(f"a record of an unknown kind: {kind!r}")
        return self.reader.storage(str(key), dtype, count)


def _state(
    module: _Module, names: dict[str, frozenset[str] | None], path: tuple[str, ...]
) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of a module and of all below it."""
    if len(path) > 100:
        raise ValueError("its modules are nested without end")
    listed = names.get(module.path)
    for name, value in getattr(module, "attributes", {}).items():
        if isinstance(value, _Module):
            yield from _state(value, names, (*path, name))
        elif isinstance(value, Tensor) and (listed is None or name in listed):
            yield ".".join((*path, name)), value
