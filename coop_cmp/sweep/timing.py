"""How long runs take, from those that are done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from coop_cmp.losses.names import split_trainer
from coop_cmp.runs.run import Run, is_zero_shot


def duration(seconds: float) -> str:
    """``75`` as ``1 min 15 s``; two units at most."""
    rest = round(seconds)
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2])) or "0 s"


Kind = tuple[object, ...]


def kind_of(run: Run) -> Kind:
    """What a run's length depends on, from the coarse to the fine."""
    learns = run.training is None and not is_zero_shot(run.trainer)
    method = split_trainer(run.trainer)[0]
    # A test of any method takes about as long.
    return (learns, run.backbone, method, run.shots, run.dataset)


class Estimator:
    """Expects a run to take as long as the most similar runs that were seen."""

    def __init__(self) -> None:
        self._count: Counter[Kind] = Counter()
        self._seconds: dict[Kind, float] = defaultdict(float)

    def add(self, run: Run, seconds: float) -> None:
        """Remember how long a run took."""
        kind = kind_of(run)
        for length in range(2, len(kind) + 1):
            self._count[kind[:length]] += 1
            self._seconds[kind[:length]] += seconds

    def expect(self, kind: Kind) -> float | None:
        """The expected seconds of a run, or None when nothing like it was seen."""
        for length in range(len(kind), 1, -1):
            if count := self._count[kind[:length]]:
                return self._seconds[kind[:length]] / count
        return None

    def total(self, kinds: Mapping[Kind, int], jobs: int) -> float | None:
        """The expected seconds for so many runs of each kind, at most ``jobs`` at a time.

        Runs of unknown length are taken for average, and with nothing known at all the answer is
        None.
        """
        number = sum(kinds.values())
        known = [(self.expect(kind), count) for kind, count in kinds.items() if count]
        seconds = sum(each * count for each, count in known if each is not None)
        counted = sum(count for each, count in known if each is not None)
        if not number or not counted:
            return None if number else 0.0
        return seconds / counted * number / min(jobs, number)
