"""Which runs go into one job, how long it asks for, and which jobs make an array."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coop_cmp.errors import UserError
from coop_cmp.runs.run import Run
from coop_cmp.sweep.timing import Estimator, duration, kind_of

PACKED = 3600.0  # seconds: short runs share a job up to this expected length
MARGIN = 2.0  # a job asks for so many times what its runs are expected to take,
EXTRA = 600.0  # and these seconds for its start and slow disks
OURS = (
    *("array", "job-name", "output", "error", "open-mode", "parsable", "wrap", "requeue", "wait"),
    "test-only",
)
READ = ("time", "cpus-per-task", "signal")  # which the sweep looks at or sets, if nobody else does


@dataclass(frozen=True)
class Array:
    """Jobs that are submitted together, each a list of runs, and the minutes each asks for."""

    jobs: tuple[tuple[Run, ...], ...]
    minutes: int

    def __str__(self) -> str:
        jobs, runs = counted(len(self.jobs), "job"), counted(sum(map(len, self.jobs)), "run")
        return f"{jobs} for {runs}, {duration(60 * self.minutes)} each"


def counted(number: int, thing: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{number} {thing}{'s' * (number != 1)}"


def parameters(text: str) -> dict[str, str]:
    """``partition=gpu gres=gpu:1`` as options of sbatch; all values stay text.

    Raises:
        UserError: A word is not a pair, or the sweep itself sets the option.
    """
    try:
        pairs = [part.partition("=") for part in shlex.split(text)]
    except ValueError as error:
        raise UserError(f"--slurm: cannot be split into words ({error}): {text}") from error
    found: dict[str, str] = {}
    for word, equals, value in pairs:
        key = word.replace("_", "-")
        if not equals or not key:
            raise UserError(f"--slurm: expected key=value pairs, got {word!r}")
        # sbatch takes abbreviated options, too.
        if ours := [option for option in OURS if option.startswith(key)]:
            meant = "" if key in OURS else f" (short for {ours[0]})"
            raise UserError(f"--slurm: {word}{meant} is set by the sweep itself; leave it out")
        if full := [option for option in READ if option.startswith(key) and option != key]:
            raise UserError(f"--slurm: {word} is an abbreviation; write {full[0]}")
        if key in found:
            raise UserError(f"--slurm: {word} is given twice")
        found[key] = value
    return found


def chains(runs: Sequence[Run]) -> list[tuple[Run, ...]]:
    """A training and its evaluations belong together, in this order."""
    found: dict[Run, list[Run]] = {}
    for run in runs:
        found.setdefault(run.training or run, []).append(run)
    return [tuple(sorted(chain, key=lambda r: r.training is not None)) for chain in found.values()]


def plan(
    runs: Sequence[Run],
    estimator: Estimator,
    time_limit: float,
    per_job: int = 1,
    largest: int | None = None,
) -> list[Array]:
    """Pack runs into jobs and jobs into arrays.

    A job of runs of unknown length asks for ``time_limit``; at its end it is requeued and goes on.

    Args:
        time_limit: seconds of the longest run.
        per_job: how many runs a job does at a time.
        largest: how many jobs an array may have.
    """
    open_jobs: list[tuple[list[Run], float]] = []
    by_minutes: dict[int, list[tuple[Run, ...]]] = {}
    for chain in chains(runs):
        each = [estimator.expect(kind_of(run)) for run in chain]
        seconds = sum(s for s in each if s is not None)
        if None in each:
            by_minutes.setdefault(math.ceil(time_limit / 60), []).append(chain)
        elif open_jobs and open_jobs[-1][1] + seconds <= PACKED * per_job:
            jobs, before = open_jobs.pop()
            open_jobs.append(([*jobs, *chain], before + seconds))
        else:
            open_jobs.append((list(chain), seconds))
    for job, seconds in open_jobs:
        longest = max(sum(estimator.expect(kind_of(r)) or 0 for r in c) for c in chains(job))
        by_minutes.setdefault(_minutes(max(longest, seconds / per_job)), []).append(tuple(job))
    return [
        Array(tuple(jobs[start : start + size]), minutes)
        for minutes, jobs in sorted(by_minutes.items())
        for size in [largest or len(jobs)]
        for start in range(0, len(jobs), size)
    ]


def _minutes(expected: float) -> int:
    """The time to ask for, in steps of double length so that few arrays hold all jobs."""
    wanted = (MARGIN * expected + EXTRA) / 60
    return 15 * 2 ** max(0, math.ceil(math.log2(wanted / 15)))


def describe(arrays: Sequence[Array], side_by_side: int, options: Mapping[str, str]) -> str:
    """The arrays, line by line, for a dry run."""
    jobs = counted(sum(len(array.jobs) for array in arrays), "Slurm job")
    title = f"{jobs} in {counted(len(arrays), 'array')}, {side_by_side} at a time:"
    lines = [f"  array {number}: {array}" for number, array in enumerate(arrays, 1)]
    if "time" in options:
        lines.append(f"  time={options['time']} was given and is asked for instead")
    return "\n".join([title, *lines])
