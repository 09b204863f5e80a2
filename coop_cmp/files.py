"""Files that are either whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` only when the block ends without an error.

    The data is flushed to disk before the rename, so after a crash ``path`` holds either its old
    content or the new one, never a part.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` as readable JSON, atomically; NaN and infinity are refused."""
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    with atomic_write(path) as file:
        file.write((text + "\n").encode())
