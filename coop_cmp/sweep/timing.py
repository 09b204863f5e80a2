"""How long runs take, from those that are done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import mean

from coop_cmp.sweep.grid import Run, is_zero_shot


def duration(seconds: float) -> str:
    """``75`` as ``1 min 15 s``; two units at most."""
    whole = round(seconds)
    for unit, name, small, small_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // small
            return f"{whole // unit} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{whole} s"


class Estimator:
    """Expects a run to take as long as the most similar runs that were seen."""

    def __init__(self) -> None:
        self.seen: dict[tuple[object, ...], list[float]] = defaultdict(list)

    @staticmethod
    def _keys(run: Run) -> list[tuple[object, ...]]:
        learns = run.training is None and not is_zero_shot(run.trainer)
        kind = (learns, run.backbone)  # a test of any method takes about as long
        method = (*kind, run.trainer.removesuffix("_CMP"))
        return [(*method, run.dataset, run.shots), (*method, run.shots), method, kind]

    def add(self, run: Run, seconds: float) -> None:
        """Remember how long a run took."""
        for key in self._keys(run):
            self.seen[key].append(seconds)

    def expect(self, run: Run) -> float | None:
        """The expected seconds of a run, or None when nothing like it was seen."""
        for key in self._keys(run):
            if key in self.seen:
                return mean(self.seen[key])
        return None

    def total(self, runs: Iterable[Run], jobs: int) -> float | None:
        """The expected seconds for all runs, at most ``jobs`` at a time; runs of unknown length
        are taken for average, and with nothing known at all the answer is None."""
        expected = [self.expect(run) for run in runs]
        known = [seconds for seconds in expected if seconds is not None]
        if not known:
            return 0.0 if not expected else None
        return mean(known) * len(expected) / min(jobs, len(expected))
