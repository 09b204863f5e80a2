"""What a person sees while a sweep runs: live lines on a terminal, plain lines in a log."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tqdm import tqdm

from coop_cmp.runs.run import Run
from coop_cmp.sweep.process import Attempt, tail
from coop_cmp.sweep.timing import Estimator, Kind, duration, kind_of

SILENCE = 30.0  # seconds after which a line tells that runs go on, where there is no terminal
_EPOCH = re.compile(r"epoch\s*\[?(\d+/\d+)\]?")


class Progress:
    """One line per event, with the count and the time left."""

    def __init__(self, total: int, done: int, jobs: int, estimator: Estimator) -> None:
        self.total, self.done, self.jobs = total, done, jobs
        self.estimator = estimator
        self.rest: Counter[Kind] = Counter()
        self.last = time.monotonic()

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.last = time.monotonic()

    def begin(self, runs: Iterable[Run]) -> None:
        """Take note of what is to be done, by kind: the time left costs no look at every run."""
        self.rest = Counter(map(kind_of, runs))

    def time_left(self, active: Mapping[int, Attempt]) -> str:
        """``, about 3 min left`` as far as it can be known."""
        seconds, number = self.estimator.total(self.rest, self.jobs), sum(self.rest.values())
        if seconds is None or not number:
            return ""
        spent = sum(attempt.seconds for attempt in active.values()) / min(self.jobs, number)
        return f", about {duration(max(seconds - spent, 1))} left"

    def started(self, run: Run, number: int) -> None:
        self.say(f"start  {run}" + ("" if number == 1 else " (again)"))

    def finished(
        self, run: Run, results: Mapping[str, Any], took: str, active: Mapping[int, Attempt]
    ) -> None:
        self.done += 1
        self.rest[kind_of(run)] -= 1
        metrics = results["metrics"]
        self.say(
            f"done   {run}: accuracy {metrics['accuracy']:.1%}, ECE {metrics['ece']:.1%}, {took}"
            f" [{self.done}/{self.total}{self.time_left(active)}]"
        )

    def failed(self, run: Run, reason: str) -> None:
        self.rest[kind_of(run)] -= 1
        self.say(f"FAILED {run}: {reason}")

    def tick(self, active: Mapping[int, Attempt]) -> None:
        """Print a line about the longest run after half a minute of silence.

        Called a few times a second.
        """
        if active and time.monotonic() - self.last >= SILENCE:
            longest = max(active.values(), key=lambda attempt: attempt.seconds)
            more = f" and {len(active) - 1} more" if len(active) > 1 else ""
            count = f"[{self.done}/{self.total}{self.time_left(active)}]"
            self.say(f"running {_describe(longest)}{more} {count}")

    def close(self) -> None:
        """Called once at the end."""


class LiveProgress(Progress):
    """A line per active run and one for the total, rewritten in place; events scroll above."""

    def __init__(self, total: int, done: int, jobs: int, estimator: Estimator) -> None:
        super().__init__(total, done, jobs, estimator)
        tqdm.monitor_interval = 0  # no helper thread: runs may be forked from this process
        self.lines = [
            tqdm(position=slot, bar_format="{desc}", leave=False, file=sys.stdout)
            for slot in range(jobs)
        ]
        self.bar = tqdm(
            total=total,
            initial=done,
            position=jobs,
            bar_format="{n_fmt}/{total_fmt} runs |{bar:30}| {elapsed}{postfix}",
            leave=False,
            file=sys.stdout,
        )

    def say(self, text: str) -> None:
        self.bar.write(text, file=sys.stdout)

    def started(self, run: Run, number: int) -> None:
        """The run's own line says so."""

    def tick(self, active: Mapping[int, Attempt]) -> None:
        for slot, line in enumerate(self.lines):
            attempt = active.get(slot)
            line.set_description_str(_describe(attempt) if attempt else "")
        self.bar.n = self.done
        self.bar.set_postfix_str(self.time_left(active).removeprefix(", "))

    def close(self) -> None:
        for line in self.lines:
            line.close()
        self.bar.close()


def _describe(attempt: Attempt) -> str:
    """``digits/CoOp/GlyphCLIP_8shots/seed1  epoch 12/50  35 s``."""
    epochs = _EPOCH.findall("\n".join(tail(attempt.log, 20)))
    progress = f"  epoch {epochs[-1]}" if epochs else ""
    return f"{attempt.trial.run}{progress}  {duration(attempt.seconds)}"


def make_progress(total: int, done: int, jobs: int, estimator: Estimator) -> Progress:
    """Live on a terminal, plain otherwise."""
    kind = LiveProgress if sys.stdout.isatty() else Progress
    return kind(total, done, jobs, estimator)
