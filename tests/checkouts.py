"""``python -m coop_cmp`` in a folder, without importing the libraries anew each time.

The commands run in processes that are forked off one which has imported them and done nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch", "dassl.engine", "dassl.engine.build", "coop_cmp.checkout.check"]
)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    files = [folder / f".{name}" for name in ("stdout", "stderr")]
    process = _context.Process(target=_command, args=(folder, arguments, files))
    process.start()
    process.join()
    texts = [file.read_text() for file in files]
    for file in files:
        file.unlink()
    return subprocess.CompletedProcess(arguments, process.exitcode or 0, *texts)


def _command(folder: Path, arguments: list[str], files: list[Path]) -> None:
    for stream, file in zip((sys.stdout, sys.stderr), files, strict=True):
        with file.open("wb") as written:
            os.dup2(written.fileno(), stream.fileno())
    os.chdir(folder)
    multiprocessing.set_start_method("fork", force=True)  # as in a process that a user starts

    from coop_cmp.__main__ import main
    from coop_cmp.cli import handled

    sys.exit(handled(lambda: main(list(arguments))))
