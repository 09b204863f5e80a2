"""``python -m coop_cmp.sweep.slurm.job FOLDER``: what a job does on its node.

It works its runs off as a local sweep would. Before its time limit Slurm sends SIGUSR2: the runs
are ended, the job is requeued, and they go on from their last checkpoints. On SIGTERM the job was
cancelled, or preempted and will be requeued by Slurm; which of them is not for the job to know.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from coop_cmp.errors import handled
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.sweep.failures import Failure
from coop_cmp.sweep.launcher import Launcher
from coop_cmp.sweep.process import import_for_runs
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.slurm import queue
from coop_cmp.sweep.slurm.submission import Submission
from coop_cmp.sweep.timing import Estimator

IDLE = 3  # times in a row that a job may reach its time limit without a checkpoint or a result
_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)


class Stop(KeyboardInterrupt):
    """Slurm wants the job to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _stop(number: int, frame: FrameType | None) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # what follows is not to be interrupted
    raise Stop(number)


def has_progressed(project: Project, runs: Sequence[Run], since: float) -> bool:
    """Whether a run has left a checkpoint or results since that time."""
    patterns = ("results.json", "*/model*.pth.tar*")
    files = (file for run in runs for p in patterns for file in project.directory(run).glob(p))
    return any(file.stat().st_mtime >= since for file in files)


def work(submission: Submission, index: int) -> int:
    """Do the runs of a job; returns its exit code."""
    started = time.time()
    project, settings, runs = submission.project, submission.settings, submission.jobs[index]
    try:
        for number in _SIGNALS:
            signal.signal(number, _stop)
        import coop_cmp.trainers  # noqa: F401 - slow, and declares the methods of the runs

        if settings.fork:
            import_for_runs(settings.threads)
        progress = Progress(len(runs), 0, settings.jobs, Estimator())
        failures = Launcher(project, settings, progress).launch(runs)
    except Stop as stop:
        if stop.number == signal.SIGTERM:
            _wait_for_the_end()
            return 1
        idle = submission.report(index)["idle"] + 1
        idle = 0 if has_progressed(project, runs, started) else idle
        if idle < IDLE:
            submission.write_report(index, idle, None)
            print("requeued before its time limit", flush=True)
            queue.requeue()
            time.sleep(600)  # Slurm ends this process
            return 1
        reason = f"no checkpoint and no result within the time of its job, {IDLE} times"
        undone = [run for run in runs if project.state(run).kind != "done"]
        failures = [Failure(run, reason) for run in undone]
    submission.write_report(index, 0, failures)
    return 1 if failures else 0


def _wait_for_the_end() -> None:
    """Stay until Slurm ends this job: one that ends by itself would not be requeued."""
    while queue.final_state(os.environ["SLURM_JOB_ID"]) == "RUNNING":
        time.sleep(2)


if __name__ == "__main__":
    submission, task = Submission(Path(sys.argv[1])), int(os.environ["SLURM_ARRAY_TASK_ID"])
    sys.exit(handled(lambda: work(submission, task)))
