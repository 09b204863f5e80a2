"""A run belongs to one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from coop_cmp.sweep.slurm import queue


class RunLock:
    """An exclusive claim on a run's directory that ends with the processes that hold it.

    The claim belongs to the open file, which the run's process inherits: if the sweep is killed
    while the run goes on, the run is still claimed; once both are gone, so is the claim. A Slurm
    job writes its number into the file: where a lock outlives a lost node, or the file system has
    no locks, the queue tells whether that job is still at work.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    @classmethod
    def take(cls, directory: Path) -> RunLock | None:
        """Claim the directory, or return None when another process has it."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / ".lock"
        file = open(path, "a+b")  # noqa: SIM115 - stays open as long as the claim
        locked = _lock(file)
        file.seek(0)
        other = file.read().decode(errors="replace")
        at_work = queue.is_at_work(other) if other != queue.holder() or not locked else False
        if at_work or (at_work is None and (locked is False or (other and not locked))):
            file.close()
            return None
        if locked is False:  # by a process that is gone: a lock on the old file is nobody's
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                path.unlink()
            file.close()
            return cls.take(directory)
        file.truncate(0)
        file.write(queue.holder().encode())
        file.flush()
        return cls(file)

    def release(self) -> None:
        """Give the directory up, even if a forked process still has a copy of the open file."""
        self.file.truncate(0)
        with suppress(OSError):
            fcntl.flock(self.file, fcntl.LOCK_UN)
        self.file.close()


def _lock(file: BinaryIO) -> bool | None:
    """Whether the file is locked for this process now; None where files cannot be locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        return None
    return True
