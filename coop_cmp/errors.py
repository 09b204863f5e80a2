"""The exception for errors that a user can fix, and the exit codes of commands."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

USER_ERROR = 2  # exit code after an error of the user
DATA_ERROR = 65  # as in sysexits.h: the same in a data set, which every method would meet
MISTAKES = (USER_ERROR, DATA_ERROR)
IO_ERROR = 74  # as in sysexits.h: the disk or the network failed, and trying again may help
_PASSING = (
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EAGAIN,
    errno.EBUSY,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.ECONNRESET,
)


def exit_code(error: Exception) -> int:
    """Return the exit code of a command after this error."""
    if isinstance(error, DataError):
        return DATA_ERROR
    passing = isinstance(error, OSError) and error.errno in _PASSING
    return IO_ERROR if passing else USER_ERROR


class UserError(ValueError):
    """Wrong input: the message names what was wrong and what to do. Shown without a traceback."""


class DataError(UserError):
    """Wrong input in a data set, which every method would meet."""


def one_line(error: BaseException) -> str:
    """Return the file and reason of a system error, or the last line of any other.

    An error of a loader process arrives wrapped in its traceback, and its last line is the message.
    """
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return f"{file}{error.strerror}"
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__


def closest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean "CoOp"?``, or nothing when no known name is near."""
    by_lower = {k.lower(): k for k in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f'; did you mean "{by_lower[matches[0]]}"?' if matches else ""
