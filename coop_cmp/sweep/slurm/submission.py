"""What was submitted, as text in a folder that is this user's alone.

Each array has a folder, named as its jobs are in the queue: ``jobs.json`` says which runs each job
has, ``<index>.json`` how a job has ended, ``<index>.log`` what it printed.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coop_cmp import __version__
from coop_cmp.errors import UserError
from coop_cmp.files import read_file, write_json
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.sweep.failures import Failure
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.process import import_variables
from coop_cmp.sweep.slurm import queue

PREFIX = "coop_cmp-"
WARNING = "B:USR2@120"  # the signal before the time limit, to the job's own process


@dataclass(frozen=True)
class Submission:
    """One job array."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def record(self) -> dict[str, Any]:
        return _read(self.folder / "jobs.json")

    @cached_property
    def jobs(self) -> list[list[Run]]:
        return [[_run(entry) for entry in job] for job in self.record["jobs"]]

    @property
    def project(self) -> Project:
        output, data, configs = (self.record["project"][k] for k in ("output", "data", "configs"))
        return Project(Path(output), data, Path(configs))

    @property
    def settings(self) -> Settings:
        lists = {key: tuple(self.record["settings"][key]) for key in ("devices", "program")}
        return Settings(**{**self.record["settings"], **lists})

    def log(self, index: int) -> Path:
        return self.folder / f"{index}.log"

    def report(self, index: int) -> dict[str, Any]:
        """What a job wrote: ``idle``, and once it has ended ``failures``."""
        os.listdir(self.folder)  # a network file system looks anew
        path = self.folder / f"{index}.json"
        return _read(path) if path.exists() else {"idle": 0}

    def write_report(self, index: int, idle: int, failures: Sequence[Failure] | None) -> None:
        """Note how a job has ended, or with None that it goes on."""
        report: dict[str, Any] = {"idle": idle}
        if failures is not None:
            report["failures"] = [[str(f.run), f.reason, list(f.log)] for f in failures]
        _write(self.folder / f"{index}.json", report)

    def failure(self, index: int, run: Run) -> Failure | None:
        """Why a job that has ended left a run undone; None as long as it has not said so."""
        report = self.report(index)
        for name, reason, log in report.get("failures", ()):
            if name == str(run):
                return Failure(run, reason, tuple(log))
        return Failure(run, "its Slurm job left it out") if "failures" in report else None

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _run(entry: Mapping[str, Any]) -> Run:
    return Run(**{**entry, "options": tuple(map(tuple, entry["options"]))})


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def _write(path: Path, record: Mapping[str, Any]) -> None:
    write_json(path, {**record, "version": __version__, "digest": _digest(record)})


def _read(path: Path) -> dict[str, Any]:
    """Return a record as it was written.

    Raises:
        UserError: It was changed since, or another version wrote it.
    """
    try:
        record = json.loads(read_file(path))
        digest, version = record.pop("digest"), record.pop("version")
        if (digest, version) == (_digest(record), __version__):
            return record
        reason = "it was changed" if version == __version__ else f"of version {version!r}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"not a record: {type(error).__name__}"
    raise UserError(
        f"{path}: cannot be used ({reason}); end its jobs with scancel --name={path.parent.name}, "
        "then remove the folder"
    )


def home(project: Project) -> Path:
    """The folder of this user's submissions.

    Raises:
        UserError: Others may write there, and what it says would be run in this user's name.
    """
    folder = project.output / f"slurm-{getpass.getuser()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    if not private or status.st_uid != os.getuid():
        raise UserError(f"{folder}: must belong to you and be private (mode 0700); remove it")
    return folder


def read_all(project: Project) -> list[Submission]:
    """All arrays of which there is a record, the oldest first."""
    found = []
    for path in sorted(home(project).glob("*/jobs.json")):
        with suppress(FileNotFoundError):  # another sweep has just removed it
            record = Submission(path.parent)
            if record.jobs:  # read while it is there
                found.append(record)
    return found


@contextmanager
def alone(project: Project) -> Iterator[None]:
    """Keep other sweeps of this user from submitting the same runs meanwhile."""
    with open(home(project) / ".lock", "ab") as file:
        with suppress(OSError):  # a disk without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def submit(
    project: Project,
    settings: Settings,
    jobs: Sequence[Sequence[Run]],
    options: Mapping[str, str],
    side_by_side: int,
) -> tuple[Submission, int]:
    """Write an array down and submit it.

    The record comes first, so that every job in the queue has one.
    """
    folder = home(project) / f"{PREFIX}{time.time_ns():x}"  # in the order of submission
    folder.mkdir(mode=0o700)
    record = {
        "project": {
            "output": str(project.output),
            "data": project.data,
            "configs": str(project.configs),
        },
        "settings": asdict(settings),
        "jobs": [[asdict(run) for run in job] for job in jobs],
    }
    _write(folder / "jobs.json", record)
    wanted = {
        "job-name": folder.name,
        "array": f"0-{len(jobs) - 1}%{side_by_side}",
        "output": f"{str(folder).replace('%', '%%')}/%a.log",
        "open-mode": "append",
        "signal": WARNING,
        **options,
    }
    submission = Submission(folder)
    try:
        return submission, queue.submit(_script(folder), wanted)
    except UserError as error:
        if not isinstance(error, queue.Away):  # which may have taken it before it went
            submission.remove()
        raise


def _script(folder: Path) -> str:
    words = [sys.executable, "-m", "coop_cmp.sweep.slurm.job", str(folder)]
    exports = [f"export {k}={shlex.quote(v)}\n" for k, v in import_variables().items()]
    return (
        "#!/bin/bash\n"
        "#SBATCH --requeue\n"
        f"{''.join(exports)}"
        f"exec {shlex.join(words)}\n"  # exec, so that signals reach Python
    )
