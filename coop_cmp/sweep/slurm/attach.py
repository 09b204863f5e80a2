"""Submit open runs that no job has, attach to existing jobs, and wait until all have ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.sweep.failures import Failure, report_failures
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.process import tail
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.slurm import queue, submission
from coop_cmp.sweep.slurm.plan import Array, counted, plan
from coop_cmp.sweep.slurm.queue import Task
from coop_cmp.sweep.slurm.submission import Submission
from coop_cmp.sweep.timing import duration

POLLS = (1.0, 30.0)  # seconds between looks at the queue, growing while nothing happens
NEVER = "Slurm cannot start this; --cancel, then change --slurm"
SETTLE = 5.0  # seconds for a shared disk to show what a job wrote at its end
PATIENCE = 60.0  # seconds that a job waits for a run that another process has


@dataclass(frozen=True)
class Holder:
    """The job that has a run, and since when it is no longer in the queue."""

    submission: Submission
    task: Task
    gone: float | None = None

    @property
    def pending(self) -> bool:
        return self.gone is None and self.task.state == "PENDING"


class Attachment:
    """The open runs of a sweep and the jobs that have them.

    Args:
        settings: as for a local sweep, with ``jobs`` the number of Slurm jobs at a time.
        options: of sbatch.
        per_job: how many runs a job does at a time.
    """

    def __init__(
        self,
        project: Project,
        settings: Settings,
        progress: Progress,
        runs: Sequence[Run],
        options: dict[str, str],
        per_job: int = 1,
    ) -> None:
        self.project, self.settings, self.progress = project, settings, progress
        self.options, self.per_job = options, per_job
        self.rest = dict.fromkeys(runs)  # neither done nor failed, in order
        self.held: dict[Run, Holder] = {}
        self.failures: dict[Run, Failure] = {}
        self.alone = True  # whether this user had nothing in the queue
        self.full = False  # whether the queue took no more

    def look(self) -> None:
        """Read the records and the queue: who has which run."""
        records = {record.name: record for record in submission.read_all(self.project)}
        found: dict[Run, Holder] = {}
        tasks = queue.tasks()
        self.alone = not tasks
        for task in tasks:
            if record := records.get(task.name):  # else another output's, or nothing of ours
                for run in record.jobs[task.index]:
                    found.setdefault(run, Holder(record, task))
        now = time.monotonic()
        gone = {run: replace(h, gone=h.gone or now) for run, h in self.held.items()}
        self.held = {run: h for run, h in (gone | found).items() if run in self.rest}

    def report_ended(self) -> None:
        """Tell why runs of jobs that ended unattended are still open, and forget old arrays."""
        there = {task.name for task in queue.tasks()}
        last: dict[Run, tuple[Submission, int]] = {}
        records = submission.read_all(self.project)
        for record in records:
            last |= {run: (record, index) for index, job in enumerate(record.jobs) for run in job}
        known = [(run, *last[run]) for run in self.rest if run in last and run not in self.held]
        told = [record.failure(index, run) for run, record, index in known]
        if failures := [failure for failure in told if failure]:
            self.progress.say(f"{report_failures(self.project, failures)}\n\nOnce more:")
        for record in records:
            others = {run for job in record.jobs for run in job if run not in self.rest}
            done = all(self.project.state(run).kind == "done" for run in others)
            if record.name not in there and done:  # else another sweep will ask for it
                record.remove()

    def settle(self) -> None:
        """Tell which runs are done, and which have failed with their jobs."""
        for run in [run for run, holder in self.held.items() if not holder.pending]:
            results = self.project.state(run).results
            if results is not None and run.training not in self.rest:
                seconds = float(results["seconds"]["total"])
                self.progress.estimator.add(run, seconds)
                self._close(run)
                self.progress.finished(run, results, duration(seconds), {})
        for run, holder in [(run, h) for run, h in self.held.items() if h.gone]:
            index, job = holder.task.index, holder.task.id
            failure = holder.submission.failure(index, run)
            if failure is None and time.monotonic() - (holder.gone or 0) > SETTLE:
                log = tuple(tail(holder.submission.log(index)))
                failure = Failure(run, f"Slurm job {job}: {queue.final_state(job)}", log)
            if failure is not None:
                self._fail(failure)

    def submit(self) -> None:
        """Submit the runs that are open, ready to start and in no job."""
        self.full = False
        for run in [run for run in self.rest if run.training in self.failures]:
            if run not in self.held:
                self._fail(Failure(run, f"skipped: {run.training} failed"))
        if not self._ready():
            return
        estimator, limit = self.progress.estimator, self.settings.time_limit
        with submission.alone(self.project):
            self.look()  # another sweep may have submitted some meanwhile
            arrays = plan(self._ready(), estimator, limit, self.per_job, queue.largest_array())
            side_by_side = max(1, self.settings.jobs // max(1, len(arrays)))
            while arrays and not self.full:
                self._submit(arrays.pop(0), arrays, side_by_side)
        self.look()

    def _ready(self) -> list[Run]:
        waiting = {*self.held, *self.failures}
        return [run for run in self.rest if run not in waiting and run.training not in waiting]

    def _submit(self, array: Array, arrays: list[Array], side_by_side: int) -> None:
        """Submit an array, or put its halves in its place where it is too large for the queue."""
        jobs = array.jobs
        inside = replace(self.settings, jobs=self.per_job, patience=PATIENCE)
        options = {"time": str(array.minutes), **self.options}
        try:
            _, number = submission.submit(self.project, inside, jobs, options, side_by_side)
        except queue.Refused:
            if len(jobs) > 1:
                half = len(jobs) // 2
                arrays[:0] = [replace(array, jobs=part) for part in (jobs[:half], jobs[half:])]
                return
            self.full = True
            if self.alone:  # else what is there will end
                raise
            return
        self.alone = False
        given = f" (time={self.options['time']} was given)" if "time" in self.options else ""
        self.progress.say(f"submitted as Slurm job {number}: {array}{given}")

    def _fail(self, failure: Failure) -> None:
        self._close(failure.run)
        self.failures[failure.run] = failure
        self.progress.failed(failure.run, failure.reason)

    def _close(self, run: Run) -> None:
        self.rest.pop(run, None)
        self.held.pop(run, None)

    @property
    def jobs(self) -> list[Task]:
        """The jobs that are there, each once."""
        there = (holder.task for holder in self.held.values() if not holder.gone)
        return list(dict.fromkeys(there))

    def status(self) -> str:
        """``slurm  3 pending, 2 running, 5 done, 0 failed, about 5 min left``."""
        pending = sum(holder.pending for holder in self.held.values())
        waiting = len(self.rest) - len(self.held)
        impossible = {task.reason for task in self.jobs if task.is_impossible}
        why = f" ({', '.join(sorted(impossible))}: {NEVER})" if impossible else ""
        words = [f"{pending} pending{why}", f"{len(self.held) - pending} running"]
        words += [f"{waiting} not submitted yet"] if waiting else []
        words += [f"{self.progress.done} done", f"{len(self.failures)} failed"]
        return f"slurm  {', '.join(words)}{self.progress.time_left({})}"


def follow(attachment: Attachment, detach: bool = False) -> list[Failure] | None:
    """Attach to what is there, submit the rest, and wait until the last job has ended.

    Ctrl-C asks whether the jobs are to be cancelled.

    Returns:
        The runs that failed, or None if it was not to wait.
    """
    try:
        _begin(attachment)
        return None if detach else _wait(attachment)
    except KeyboardInterrupt:
        _ask(attachment)
        raise


def _begin(attachment: Attachment) -> None:
    attachment.progress.begin(attachment.rest)
    with submission.alone(attachment.project):
        attachment.look()
        attachment.report_ended()
    if attachment.jobs:
        jobs = counted(len(attachment.jobs), "Slurm job")
        attachment.progress.say(f"attached to {jobs} with {len(attachment.held)} of the runs")
    attachment.settle()
    attachment.submit()
    attachment.progress.say(attachment.status())


def _wait(attachment: Attachment) -> list[Failure]:
    pause, said = POLLS[0], attachment.status()
    while attachment.rest:
        time.sleep(pause)
        try:
            attachment.look()
            attachment.settle()
            attachment.submit()
            status = attachment.status()
        except queue.Away as error:
            status = f"slurm  does not answer ({error})"
        pause = POLLS[0] if status != said else min(1.5 * pause, POLLS[1])
        if status != said:
            attachment.progress.say(status)
            said = status
    return list(attachment.failures.values())


def _ask(attachment: Attachment) -> None:
    """Cancel the jobs or, which is the default, leave them running."""
    count = counted(len(attachment.jobs), "Slurm job")
    try:
        asked = sys.stdin.isatty()
        answer = input(f"\nLeave {count} running? [Y/n] ") if asked else ""
    except (EOFError, KeyboardInterrupt):
        answer = ""
    if answer.strip().lower().startswith("n"):
        cancel(attachment)
    else:
        print(f"Left to go on: {count}; --cancel cancels.", flush=True)


def cancel(attachment: Attachment) -> None:
    """Cancel all jobs that have one of the runs."""
    attachment.look()
    queue.cancel(attachment.jobs)
    print(f"Cancelled {counted(len(attachment.jobs), 'Slurm job')}.", flush=True)
