"""One run as one process: its device, its log, its end."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import BinaryIO

from coop_cmp import CONFIGS, INSTALLED
from coop_cmp.runs.project import Project
from coop_cmp.runs.records import RESULTS_FILE
from coop_cmp.runs.run import Run
from coop_cmp.sweep.lock import RunLock

LOG = "sweep.log"
PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Ask the system to end this process when its parent is gone, even by SIGKILL.

    Only Linux can. Elsewhere a run may outlive its sweep, and its lock keeps others off.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_here(call: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> None:
    """Run what ``python <call>`` would in this fork, which has done the slow imports already."""
    _end_with_parent()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup keeps a run going too
            signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - until the end
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(call)
    if call[0] == "-m":
        del sys.argv[0]
        runpy.run_module(call[1], run_name="__main__")
    else:
        runpy.run_path(call[0], run_name="__main__")


def import_variables() -> dict[str, str]:
    """Return the variables with which another Python imports this package and no other.

    In a clone it is found by its path; a yaml.py in the current folder is not imported.
    """
    variables = {"PYTHONSAFEPATH": "1"}
    if not INSTALLED:
        paths = (str(CONFIGS.parent), os.environ.get("PYTHONPATH"))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return variables


def import_for_runs(threads: int) -> None:
    """Load what every run needs, so that a forked run has it already.

    Nobody looks for garbage among it before the end: forks would copy what they look at.
    """
    import_module("coop_cmp.cli.training")  # by name, as runs are called by name
    with suppress(ImportError):  # not everybody has it
        import torch.utils.tensorboard
    gc.freeze()
    atexit.register(gc.unfreeze)  # triton 3.9 would report what is left at the end as leaks
    if threads:
        import torch

        torch.set_num_threads(threads)  # too late for the environment variable


def tail(log: Path, lines: int = 8) -> list[str]:
    """The last lines of a log that say something."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            text = file.read().decode(errors="replace").replace("\r", "\n")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]


@dataclass(frozen=True)
class Trial:
    """One go at a run.

    Attributes:
        number: 1 for the first.
        avoid: A device on which it failed.
        alone: The device on which it must have no neighbours; "" if it may have.
        redo: Whether it replaces a run with other settings.
    """

    run: Run
    number: int = 1
    avoid: str = ""
    alone: str = ""
    redo: bool = False


@dataclass
class Attempt:
    """A trial while it is running."""

    trial: Trial
    device: str
    lock: RunLock
    process: subprocess.Popen[bytes] | ForkProcess
    log: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def exit_code(self) -> int | None:
        """Minus the signal that ended it; None while it runs."""
        process = self.process
        return process.exitcode if isinstance(process, ForkProcess) else process.poll()

    def stop(self, patience: float = 10.0) -> None:
        """End the process, gently at first, and wait until it is gone."""
        self.process.terminate()
        deadline = time.monotonic() + patience
        while self.exit_code is None:
            if time.monotonic() > deadline:
                self.process.kill()
            time.sleep(0.05)


def command_on(device: str, project: Project, run: Run, redo: bool) -> list[str]:
    """The arguments of ``coop-cmp`` that do a run on a device.

    It is named, so that one that does not work is an error and not a slow run on another. Its
    environment shows a run a single GPU, whose number is then 0.
    """
    command, *words = project.command(run)
    flags = ["--device", device.partition(":")[0], *(["--redo"] if redo else [])]
    return [command, *flags, *words]


def reject_results(directory: Path) -> None:
    """Rename a results file that must not be used; it can still be read."""
    results = directory / RESULTS_FILE
    if results.exists():
        results.replace(directory / "results.rejected.json")


def start(
    trial: Trial,
    lock: RunLock,
    device: str,
    directory: Path,
    call: Sequence[str],
    environment: Mapping[str, str],
    fork: bool,
) -> Attempt:
    """Start ``python <call>`` for a claimed run; what it prints is added to its log."""
    reject_results(directory)  # a run with results to trust does not get here
    path = directory / LOG
    with open(path, "ab") as log:
        log.write(f"== attempt {trial.number} on {device}\n".encode())
        log.flush()
        process: subprocess.Popen[bytes] | ForkProcess
        if fork:
            process = ForkProcess(target=run_here, args=(call, environment, log))
            process.start()
        else:
            process = subprocess.Popen(
                [sys.executable, *call],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment, **import_variables()},
                pass_fds=(lock.file.fileno(),),
                preexec_fn=_end_with_parent,
            )
    return Attempt(trial, device, lock, process, path)
