"""A copy of everything printed, in a file."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, TextIO


class Logger:
    """A text stream that writes to the console and to a file.

    Everything that is not defined here (``isatty``, ``fileno``, ``encoding``, ...) is the
    console's, so that code which asks about the terminal still gets the right answer.
    """

    def __init__(self, fpath: str, console: TextIO | None = None) -> None:
        self.console: Any = sys.stdout if console is None else console
        directory = os.path.dirname(os.path.abspath(fpath))
        try:
            os.makedirs(directory, exist_ok=True)
            # Line buffered: a killed run keeps what it has printed.
            self.file = open(fpath, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise OSError(
                f'cannot write the log file "{fpath}": {error.strerror or error}; '
                "choose another --output-dir"
            ) from error

    def write(self, text: str) -> int:
        """Write to both."""
        self.write_file(text)
        self.console.write(text)
        return len(text)

    def write_file(self, text: str) -> None:
        """Write to the file only (the console shows a progress bar instead)."""
        if not self.file.closed:
            self.file.write(text)

    def flush(self) -> None:
        """Flush both."""
        self.console.flush()
        if not self.file.closed:
            self.file.flush()

    def close(self) -> None:
        """Close the file; the console belongs to the interpreter and stays open."""
        self.file.close()

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in ("console", "file"):  # not set yet: __init__ failed
            raise AttributeError(name)
        return getattr(self.console, name)


def setup_logger(output: str | None = None) -> None:
    """Tee ``sys.stdout`` into a file from now on.

    Args:
        output: A file (``.txt`` or ``.log``) or a directory (then ``<output>/log.txt``). If the
            file exists, the new one gets the time as a suffix. None or "" does nothing.
    """
    if not output:
        return
    fpath = output if output.endswith((".txt", ".log")) else os.path.join(output, "log.txt")
    if os.path.exists(fpath):
        fpath += time.strftime("-%Y-%m-%d-%H-%M-%S")

    stdout: Any = sys.stdout
    logger = Logger(fpath, stdout.console if isinstance(stdout, Logger) else stdout)
    if isinstance(stdout, Logger):  # a second run in the same process gets a log of its own
        stdout.close()
    sys.stdout = logger  # type: ignore[assignment]
