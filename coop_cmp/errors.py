"""The exception for errors that a user can fix, and how a command ends with an error."""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.util import find_spec

USER_ERROR = 2  # exit code after an error of the user
DATA_ERROR = 65  # as in sysexits.h: the same in a data set, which every method would meet
DEBUG = "COOP_CMP_DEBUG"  # the environment variable that asks for tracebacks
INSTALL = "activate the environment (. .venv/bin/activate) or pip install -r requirements.txt"
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
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
    """Return the file and reason of a system error, or the message of any other in one line.

    An error of a loader process arrives wrapped in its traceback, at whose end is the message.
    """
    if isinstance(error, OSError) and error.strerror:
        file = f"{error.filename}: " if error.filename else ""
        return _shown(f"{file}{error.strerror}")
    text = str(error)
    if wrapped := re.match(r"Caught \w+ in .*\nOriginal Traceback", text):
        ends = list(re.finditer(r"^[\w.]+: ", text[wrapped.end() :], re.MULTILINE))
        text = text[wrapped.end() + ends[-1].end() :] if ends else text
    return _shown(text) or type(error).__name__


def _shown(text: str) -> str:
    """Return a text in one line, with escapes for what a terminal would obey."""
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], " ".join(text.split()))


def first_line(error: BaseException) -> str:
    """Return the first line of an error of a library, which may have many."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def handled(call: Callable[[], int], interrupted: str = "interrupted") -> int:
    """Return the exit code of a call, after a line about the error with which it ended.

    An error of the user (`UserError`) or of the system (`OSError`) is one line on stderr, with
    ``--debug`` or ``COOP_CMP_DEBUG=1`` its traceback. Any other error is a defect and is raised.
    """
    try:
        return call()
    except BrokenPipeError:
        # The reader, such as head, has closed the pipe: drop the rest of the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UserError, OSError) as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        print(f"error: {one_line(error)}", file=sys.stderr)
        return exit_code(error)
    except ModuleNotFoundError as error:
        if find_spec("torch"):
            raise
        print(f"error: {error}; {INSTALL}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print(f"\n{interrupted}", file=sys.stderr)
        return 130


def closest(name: str, known: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean "CoOp"?``, or nothing when no known name is near."""
    by_lower = {k.lower(): k for k in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=8, cutoff=0.5)
    # Letters in another order are the likeliest slip.
    same = [match for match in matches if sorted(match) == sorted(name.lower())]
    return f'; did you mean "{by_lower[(same or matches)[0]]}"?' if matches else ""
