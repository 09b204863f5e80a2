"""Files that are either whole or not there, and files of settings."""

from __future__ import annotations

import errno
import glob
import json
import os
import platform
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from coop_cmp.errors import UserError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` only when the block ends without an error.

    The data is flushed to disk before the rename, so after a crash ``path`` holds either its old
    content or the new one, never a part. What a killed process left of it is removed.

    Raises:
        OSError: It cannot be written, or is a device or a pipe; the error names ``path``.
    """
    target = Path(path)
    if target.exists() and not (target.is_file() or target.is_dir()):  # it would be replaced
        raise OSError(errno.EINVAL, "not a regular file", str(target))
    temporary = target.with_name(f".{target.name}.{platform.node()}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent, target.name)
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a full disk names nothing
            raise OSError(error.errno, error.strerror or str(error), str(target)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(directory: str | os.PathLike[str], name: str = "") -> None:
    """Delete what killed processes of this machine left of a file, or of all in a directory."""
    pattern = f".{glob.escape(name) or '*'}.{glob.escape(platform.node())}.*.tmp"
    for leftover in Path(directory).glob(pattern):
        process = leftover.name.split(".")[-2]
        if process.isdigit() and not is_running(int(process)):
            leftover.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether there is a process with this number; True where that cannot be asked."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file; refuse pipes and devices, which may block or never end.

    Raises:
        OSError: It cannot be read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return Path(path).read_bytes()


def check_stored(path: str | os.PathLike[str]) -> None:
    """Refuse a zip archive with compressed members, which a megabyte can let fill the memory.

    Raises:
        ValueError: It has some; torch never writes any.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"{member.filename} is compressed")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` as readable JSON, atomically; NaN and infinity are refused."""
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    with atomic_write(path) as file:
        # Bytes of a path that are not UTF-8 become escapes, which JSON reads back as they were.
        file.write((text + "\n").encode(errors="backslashreplace"))


def resolved(path: str | os.PathLike[str], option: str) -> Path:
    """Return the absolute path that a user's path stands for, without ``~`` and links.

    Raises:
        UserError: ``~name`` is nobody's home, links lead in a circle, or the path is not UTF-8,
            which no run takes; names the option.
    """
    try:
        found = Path(path).expanduser().resolve()
        str(found).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{option} {os.fspath(path)!a}: not UTF-8; rename it") from error
    except (RuntimeError, OSError) as error:
        raise UserError(f"{option} {path}: not a usable path ({error})") from error
    return found


class _PlainLoader(yaml.SafeLoader):
    """Refuse what YAML would silently read as something else.

    A key that stands twice in a mapping, of which the last would count, and numbers such as 010 (8)
    and 1:30 (90).
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                places = f"lines {lines[key.value]} and {line}"
                raise ValueError(f'the key "{key.value}" is given twice, in {places}')
            lines[key.value] = line
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if ":" in node.value or re.match(r"[-+]?0[\w]", node.value):
            place = f"line {node.start_mark.line + 1}"
            raise ValueError(f"the number {node.value} in {place} is not in decimal digits")
        kind = node.tag.rpartition(":")[2]
        return getattr(self, f"construct_yaml_{kind}")(node)


for _kind in ("int", "float"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _PlainLoader.construct_number)


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Return the content of a YAML file.

    Raises:
        FileNotFoundError: There is no such file.
        UserError: It is not a regular file, not YAML, or gives a key twice or an odd number.
    """
    try:
        return yaml.load(read_file(path).decode("utf-8"), _PlainLoader)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path}: not readable as YAML ({reason})") from error
