"""What a person sees while a sweep runs."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from coop_cmp.runs.run import Run
from coop_cmp.sweep.process import Attempt, tail
from coop_cmp.sweep.timing import Estimator, Kind, duration, kind_of

SILENCE = 30.0  # seconds after which a line tells that runs go on, where there is no terminal
_EPOCH = re.compile(r"epoch\s*\[?(\d+/\d+)\]?")


class Progress:
    """One line per event, with the count and the time left; on a terminal a live one below."""

    def __init__(self, total: int, done: int, jobs: int, estimator: Estimator) -> None:
        self.total, self.done, self.jobs = total, done, jobs
        self.estimator = estimator
        self.rest: Counter[Kind] = Counter()
        self.last = time.monotonic()
        self._clear = "\r\x1b[K" if sys.stdout.isatty() else ""  # the live line

    def say(self, text: str, end: str = "\n") -> None:
        print(f"{self._clear}{text}", end=end, flush=True)
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
        """Print a line about the longest run: after half a minute of silence, or live.

        Called a few times a second.
        """
        if active and time.monotonic() - self.last >= (1 if self._clear else SILENCE):
            longest = max(active.values(), key=lambda attempt: attempt.seconds)
            more = f" and {len(active) - 1} more" if len(active) > 1 else ""
            count = f"[{self.done}/{self.total}{self.time_left(active)}]"
            line = f"running {_describe(longest)}{more} {count}"
            if self._clear:
                self.say(line[: shutil.get_terminal_size().columns - 1], end="")
            else:
                self.say(line)


def _describe(attempt: Attempt) -> str:
    """``digits/CoOp/GlyphCLIP_8shots/seed1  epoch 12/50  35 s``."""
    epochs = _EPOCH.findall("\n".join(tail(attempt.log, 20)))
    progress = f"  epoch {epochs[-1]}" if epochs else ""
    return f"{attempt.trial.run}{progress}  {duration(attempt.seconds)}"
