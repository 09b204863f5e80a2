"""Run processes in parallel until every run of a sweep is done or has failed for good."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import FrameType

from coop_cmp.errors import DATA_ERROR, MISTAKES
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.sweep.devices import environment_for
from coop_cmp.sweep.failures import Failure, alike, describe_exit, out_of_memory
from coop_cmp.sweep.lock import RunLock
from coop_cmp.sweep.process import Attempt, Trial, command_on, reject_results, start, tail
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.timing import duration

POLL_SECONDS = 0.05
TRIES = 2  # how often a run is started before it counts as failed


@dataclass(frozen=True)
class Settings:
    """How runs are executed.

    Args:
        devices: ``cpu``, ``mps`` or ``cuda:N``; the slots take them in turn.
        jobs: how many runs at a time.
        threads: CPU threads per run, 0 to leave it to torch.
        time_limit: seconds after which a run is ended.
        fork: start runs from this process after importing what they need once.
        redo: replace runs with other settings that are in the way.
        patience: seconds to wait for a run that another process has.
        program: what Python runs, before the words of a run's command.
    """

    devices: tuple[str, ...] = ("cpu",)
    jobs: int = 1
    threads: int = 1
    time_limit: float = 12 * 3600.0
    fork: bool = False
    redo: bool = False
    patience: float = 12 * 3600.0
    program: tuple[str, ...] = ("-m", "coop_cmp.cli")


class Launcher:
    """Executes a list of runs; it can be killed at any time and started twice in parallel."""

    def __init__(self, project: Project, settings: Settings, progress: Progress) -> None:
        self.project, self.settings, self.progress = project, settings, progress
        self.pending: dict[Run, Trial] = {}  # in order, with quick look-up
        self.active: dict[int, Attempt] = {}
        self.failures: dict[Run, Failure] = {}
        self.waiting_since: dict[Run, float] = {}

    def launch(self, runs: Iterable[Run]) -> list[Failure]:
        """Do all runs that are not done yet.

        Returns:
            The runs that failed for good.

        Raises:
            KeyboardInterrupt: on Ctrl-C, SIGTERM or SIGHUP, after the active runs were ended.
        """
        self.pending = {run: Trial(run) for run in runs}
        self.progress.begin(self.pending)
        handlers = {
            number: signal.signal(number, _interrupt)
            for number in _STOP_SIGNALS
            # nohup keeps a sweep running, and a Slurm job has its own ways.
            if signal.getsignal(number) is signal.SIG_DFL
        }
        try:
            while self.pending or self.active:
                self._collect()
                self._fill_slots()
                self.progress.tick(self.active)
                if self.pending or self.active:
                    time.sleep(POLL_SECONDS)
        finally:
            for attempt in self.active.values():
                attempt.stop()
                attempt.lock.release()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return list(self.failures.values())

    def _fill_slots(self) -> None:
        for slot in range(self.settings.jobs):
            device = self.settings.devices[slot % len(self.settings.devices)]
            if slot not in self.active and (claimed := self._claim_next(device)):
                trial, lock = claimed
                self.progress.started(trial.run, trial.number)
                self.active[slot] = self._start(trial, lock, device)

    def _start(self, trial: Trial, lock: RunLock, device: str) -> Attempt:
        call = [*self.settings.program, *command_on(device, self.project, trial.run, trial.redo)]
        directory = self.project.directory(trial.run)
        environment = environment_for(device, self.settings.threads)
        return start(trial, lock, device, directory, call, environment, self.settings.fork)

    def _claim_next(self, device: str) -> tuple[Trial, RunLock] | None:
        """The next trial that can start now on this device, with its lock."""
        neighbours = [a for a in self.active.values() if a.device == device]
        if any(attempt.trial.alone for attempt in neighbours):
            return None
        active = {attempt.trial.run for attempt in self.active.values()}
        reserved = any(trial.alone == device for trial in self.pending.values())
        others = set(self.settings.devices[: self.settings.jobs]) - {device}
        for run, trial in list(self.pending.items()):
            needed = run.training
            if needed in self.failures:
                self._give_up(Failure(run, f"skipped: {needed} failed"))
            elif needed in active or needed in self.pending or (trial.avoid == device and others):
                continue
            elif (not reserved or (trial.alone == device and not neighbours)) and (
                claimed := self._claim(trial)
            ):
                return claimed
        return None

    def _claim(self, trial: Trial) -> tuple[Trial, RunLock] | None:
        """Lock the run's directory if there is still something to do in it."""
        run = trial.run
        lock = RunLock.take(self.project.directory(run))
        if lock is None:
            self._wait_for_other(run)
            return None
        state = self.project.state(run)
        if run.training and self.project.state(run.training).kind != "done":
            self._give_up(Failure(run, f"skipped: {run.training} is not done"))
        elif state.kind == "foreign" and not self.settings.redo:
            self._give_up(Failure(run, state.reason))
        elif state.results is not None:
            # Another sweep did it while this one was waiting for the lock.
            del self.pending[run]
            self.progress.finished(run, state.results, "elsewhere", self.active)
        else:
            del self.pending[run]
            return replace(trial, redo=state.kind == "foreign"), lock
        lock.release()
        return None

    def _wait_for_other(self, run: Run) -> None:
        now = time.monotonic()
        if run not in self.waiting_since:
            self.progress.say(f"wait   {run}: another process holds the lock")
        if now - self.waiting_since.setdefault(run, now) > self.settings.patience:
            held = duration(self.settings.patience)
            self._give_up(Failure(run, f"another process has held it for {held}"))

    def _collect(self) -> None:
        """Look after the active runs: finished, failed or too long."""
        for slot, attempt in list(self.active.items()):
            code = attempt.exit_code
            if code is None and attempt.seconds <= self.settings.time_limit:
                continue
            if code is None:
                attempt.stop()
            del self.active[slot]
            self._end(attempt, code)
            attempt.lock.release()

    def _end(self, attempt: Attempt, code: int | None) -> None:
        """Note how a run has ended; ``code`` is None for one that was ended at its time limit."""
        run, state = attempt.trial.run, self.project.state(attempt.trial.run)
        if code is None:
            limit = duration(self.settings.time_limit)
            self._fail(attempt, f"ended at its time limit of {limit}", retry=False)
        elif code in MISTAKES:  # the same again would not help
            self._fail(attempt, describe_exit(code), retry=False)
            reason = f"skipped: {run} failed with the same settings or data"
            fresh = [run for run, other in self.pending.items() if other.number == 1]
            for other in alike(run, fresh, code == DATA_ERROR):
                self._give_up(Failure(other, reason))
        elif code:
            self._fail(attempt, describe_exit(code))
        elif state.results is not None:
            self.progress.estimator.add(run, attempt.seconds)
            self.progress.finished(run, state.results, duration(attempt.seconds), self.active)
        elif state.kind == "foreign":
            # Whole and right for the settings it started with, which the files no longer have.
            self._give_up(Failure(run, f"its settings changed while it ran; {state.reason}"))
        else:
            self._fail(attempt, state.reason or "exited with 0 but left no results.json")

    def _fail(self, attempt: Attempt, reason: str, retry: bool = True) -> None:
        """Put a run that did not succeed back to be tried again, or keep it as a failure."""
        trial = attempt.trial
        failure = Failure(trial.run, reason, tuple(tail(attempt.log)))
        # It may have failed after writing them, and tables would take them.
        reject_results(self.project.directory(trial.run))
        if not retry or trial.number == TRIES:
            self._give_up(failure)
            return
        crowded = not trial.alone and out_of_memory(failure)
        self.progress.say(f"again  {trial.run}: {reason}{', now alone' if crowded else ''}")
        alone, avoid = (attempt.device, "") if crowded else ("", attempt.device)
        self.pending[trial.run] = Trial(trial.run, trial.number + 1, avoid, alone)

    def _give_up(self, failure: Failure) -> None:
        self.pending.pop(failure.run, None)
        self.failures[failure.run] = failure
        self.progress.failed(failure.run, failure.reason)


_STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
