"""Runs processes side by side until every run of a sweep is done or has failed for good."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType

from coop_cmp.sweep.grid import Run
from coop_cmp.sweep.process import Attempt, RunLock, reject_results, start
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.project import Project
from coop_cmp.sweep.timing import duration

USER_ERROR = 2
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Settings:
    """How runs are executed.

    Args:
        devices: ``cpu``, ``mps`` or ``cuda:N``; the slots take them in turn.
        jobs: how many runs at a time.
        threads: CPU threads per run, 0 to leave it to torch.
        time_limit: seconds after which a run is ended.
        tries: how often a run is started before it counts as failed.
        fork: start runs from this process after importing what they need once.
    """

    devices: tuple[str, ...] = ("cpu",)
    jobs: int = 1
    threads: int = 1
    time_limit: float = 12 * 3600.0
    tries: int = 2
    fork: bool = False


@dataclass(frozen=True)
class Failure:
    """A run that is not done, why, and the end of its log."""

    run: Run
    reason: str
    log: tuple[str, ...] = ()


class Launcher:
    """Works off a list of runs; safe to kill at any moment and to start twice at once."""

    def __init__(self, project: Project, settings: Settings, progress: Progress) -> None:
        self.project, self.settings, self.progress = project, settings, progress
        self.pending: dict[Run, None] = {}  # in order, with quick look-up
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
        self.pending = dict.fromkeys(runs)
        handlers = {
            number: signal.signal(number, _interrupt)
            for number in _STOP_SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN  # nohup keeps a sweep running
        }
        try:
            while self.pending or self.active:
                self._collect()
                self._fill_slots()
                self.progress.tick(self._rest(), self.active)
                if self.pending or self.active:
                    time.sleep(POLL_SECONDS)
        finally:
            for attempt in self.active.values():
                attempt.stop()
                attempt.lock.release()
            self.progress.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return list(self.failures.values())

    def _rest(self) -> list[Run]:
        return [*self.pending, *(attempt.run for attempt in self.active.values())]

    def _device(self, slot: int) -> str:
        return self.settings.devices[slot % len(self.settings.devices)]

    def _fill_slots(self) -> None:
        for slot in range(self.settings.jobs):
            while slot not in self.active:
                claimed = self._claim_next()
                if claimed is None:
                    return
                self._start(slot, *claimed)

    def _claim_next(self) -> tuple[Run, RunLock] | None:
        """The next run that can start now, with its lock."""
        active = {attempt.run for attempt in self.active.values()}
        for run in list(self.pending):
            needed = run.training
            if needed in self.failures:
                self._give_up(run, f"not started, because {needed} failed")
            elif needed in active or needed in self.pending:
                continue
            elif lock := self._claim(run):
                return run, lock
        return None

    def _claim(self, run: Run) -> RunLock | None:
        """Lock the run's directory if there is still something to do in it."""
        lock = RunLock.take(self.project.directory(run))
        if lock is None:
            self._wait_for_other(run)
            return None
        state = self.project.state(run)
        if run.training and self.project.state(run.training).kind != "done":
            self._give_up(run, f"not started, because {run.training} is not done")
        elif state.kind == "foreign":
            self._give_up(run, state.reason)
        elif state.results is not None:
            # Another sweep did it while this one was waiting for the lock.
            del self.pending[run]
            self.progress.finished(run, state.results, "elsewhere", self._rest(), self.active)
        else:
            del self.pending[run]
            return lock
        lock.release()
        return None

    def _wait_for_other(self, run: Run) -> None:
        now = time.monotonic()
        if run not in self.waiting_since:
            self.progress.say(f"wait   {run}: another process is at it")
        if now - self.waiting_since.setdefault(run, now) > self.settings.time_limit:
            self._give_up(run, "another process has held it past the time limit")

    def _start(self, slot: int, run: Run, lock: RunLock, number: int = 1) -> None:
        settings = self.settings
        self.progress.started(run, number)
        device = self._device(slot)
        self.active[slot] = start(
            self.project, run, lock, device, settings.threads, settings.fork, number
        )

    def _collect(self) -> None:
        """Look after the active runs: finished, failed or too long."""
        for slot, attempt in list(self.active.items()):
            code = attempt.process.poll()
            if code is None:
                if attempt.seconds > self.settings.time_limit:
                    attempt.stop()
                    limit = duration(self.settings.time_limit)
                    self._end(slot, f"ended at its time limit of {limit}", retry=False)
            elif code != 0:
                # train.py ends with 2 for a mistake of the user: the same again would not help.
                self._end(slot, _describe_exit(code), retry=code != USER_ERROR)
            else:
                self._accept(slot, attempt)

    def _accept(self, slot: int, attempt: Attempt) -> None:
        state = self.project.state(attempt.run)
        if state.results is None:
            self._end(slot, state.reason or "ended well but left no results.json", retry=True)
            return
        self.progress.estimator.add(attempt.run, attempt.seconds)
        attempt.lock.release()
        del self.active[slot]
        took = duration(attempt.seconds)
        self.progress.finished(attempt.run, state.results, took, self._rest(), self.active)

    def _end(self, slot: int, reason: str, retry: bool) -> None:
        """A run did not succeed: try again in the same slot, or keep it as a failure."""
        attempt = self.active.pop(slot)
        if retry and attempt.number < self.settings.tries:
            self.progress.say(f"again  {attempt.run}: {reason}")
            self._start(slot, attempt.run, attempt.lock, attempt.number + 1)
            return
        # It may have failed after writing them, and tables would take them.
        reject_results(self.project.directory(attempt.run))
        attempt.lock.release()
        self._give_up(attempt.run, reason, attempt.tail())

    def _give_up(self, run: Run, reason: str, log: Sequence[str] = ()) -> None:
        self.pending.pop(run, None)
        self.failures[run] = Failure(run, reason, tuple(log))
        self.progress.failed(run, reason)


_STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _describe_exit(code: int) -> str:
    return f"ended with exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"


def report_failures(project: Project, failures: Sequence[Failure]) -> str:
    """All failures with the ends of their logs, and how to repeat each alone."""
    lines = [f"{len(failures)} of the runs failed:"]
    for failure in failures:
        lines += ["", f"{failure.run}: {failure.reason}"]
        lines += [f"    | {line}" for line in failure.log]
        lines.append(f"    again: {project.shell_command(failure.run)}")
    return "\n".join(lines)
