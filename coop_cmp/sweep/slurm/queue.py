"""What Slurm's own commands say and do; accounting need not be on."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from coop_cmp.errors import UserError

DEFAULT_ARRAY = 1001  # Slurm's own, where it cannot be asked
_FORMAT = "%F|%K|%j|%T|%r"
_LIMIT = re.compile(r"SubmitJob\w*Limit|job submit limit")
_AWAY = re.compile(r"contact slurm controller|[Tt]imed out|temporarily|[Cc]onnection refused")
_ASK_AGAIN = 30.0
_OPTIONS = ("SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_")
# Why Slurm does not start a job that asks for what there is not.
_IMPOSSIBLE = ("BadConstraints", "PartitionConfig", "PartitionNodeLimit", "PartitionTimeLimit")


class Refused(UserError):
    """sbatch said no because too many jobs are queued already."""


class Away(UserError):
    """The controller does not answer, which it may do again."""


@dataclass(frozen=True)
class Task:
    """One job, as the queue shows it.

    Attributes:
        array: Number of the array job.
        index: Its place in the array, -1 for a job that is in none.
        name: The array's name.
        state: ``PENDING``, ``RUNNING`` and so on.
        reason: Why it is pending.
    """

    array: int
    index: int
    name: str
    state: str
    reason: str

    @property
    def id(self) -> str:
        return f"{self.array}_{self.index}"

    @property
    def is_impossible(self) -> bool:
        """Whether it asks for what there is not, so that it will never start."""
        return self.state == "PENDING" and self.reason in _IMPOSSIBLE


def environment() -> dict[str, str]:
    """Return this process's variables without those that stand for options of Slurm's commands.

    ``SQUEUE_STATES=RUNNING`` would hide pending jobs, ``SBATCH_WAIT=1`` would wait for the jobs.
    """
    return {k: v for k, v in os.environ.items() if not k.startswith(_OPTIONS)}


def call(*command: str, text: str = "") -> str:
    """The output of one of Slurm's commands.

    Raises:
        UserError: It is not there or ended with an error, of which the last line is shown.
    """
    try:
        done = subprocess.run(
            command, input=text, env=environment(), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise UserError(f"--slurm: no {command[0]} here; submit where Slurm is") from error
    if done.returncode:
        words = done.stderr.strip() or f"exit code {done.returncode}"
        kind = Refused if _LIMIT.search(words) else Away if _AWAY.search(words) else UserError
        raise kind(f"--slurm: {words.splitlines()[-1]}")
    return done.stdout


def tasks() -> list[Task]:
    """This user's jobs in the queue, the first submitted first."""
    user = f"--user={os.getuid()}"
    lines = call("squeue", "--noheader", "--array", user, f"--format={_FORMAT}").splitlines()
    fields = [line.strip().split("|", 4) for line in lines]
    known = [f for f in fields if len(f) == 5]
    found = [Task(int(f[0]), int(f[1]) if f[1].isdigit() else -1, *f[2:]) for f in known]
    return sorted(found, key=lambda task: (task.array, task.index))


def submit(script: str, options: Mapping[str, str]) -> int:
    """Submit a job array and return its number."""
    words = [f"--{key}={value}" for key, value in options.items()]
    answer = call("sbatch", "--parsable", *words, text=script)
    return int(answer.strip().splitlines()[-1].partition(";")[0])


def cancel(jobs: Sequence[Task]) -> None:
    """Cancel jobs; those that have ended meanwhile are ignored."""
    for start in range(0, len(jobs), 500):
        call("scancel", "--quiet", *(task.id for task in jobs[start : start + 500]))


def requeue() -> None:
    """Put the job that this process belongs to back into the queue, which ends this process."""
    call("scontrol", "requeue", os.environ["SLURM_JOB_ID"])


def final_state(job: str) -> str:
    """How a job ended, such as ``CANCELLED``, while Slurm still knows."""
    try:
        found = re.search(r"JobState=(\w+)", call("scontrol", "--oneliner", "show", "job", job))
    except UserError:
        found = None
    return found[1] if found else "ended"


def largest_array() -> int | None:
    """How many jobs an array may have here; None where there is no Slurm to ask."""
    try:
        config = call("scontrol", "show", "config")
    except UserError:
        return None
    limits = re.findall(r"^(?:MaxArraySize|MaxJobCount)\s*=\s*(\d+)", config, re.MULTILINE)
    limits += re.findall(r"max_array_tasks=(\d+)", config)
    return max(1, min(map(int, limits))) if limits else None


def holder() -> str:
    """Who holds what this process takes: the Slurm job it is in and how often that was requeued."""
    job, restart = (os.environ.get(f"SLURM_{name}") for name in ("JOB_ID", "RESTART_COUNT"))
    return f"{job} {restart or 0}" if job else ""


def is_at_work(other: str) -> bool | None:
    """Whether a holder's job may still be at work, by the queue; None where it cannot tell."""
    job, _, restart = other.partition(" ")
    if not job.isdigit() or not restart.isdigit():
        return None
    mine, _, count = holder().partition(" ")
    if job == mine:
        return int(restart) >= int(count)
    return _in_queue(job, int(time.monotonic() / _ASK_AGAIN))


@lru_cache(maxsize=256)
def _in_queue(job: str, now: int) -> bool | None:
    try:
        return bool(call("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip())
    except UserError as error:
        return False if "Invalid job id" in str(error) else None
