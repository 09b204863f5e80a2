"""Why runs fail, with each cause reported once."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coop_cmp.errors import DATA_ERROR, IO_ERROR
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run

_MEMORY = ("out of memory", "outofmemoryerror", "can't allocate memory", "memoryerror")


@dataclass(frozen=True)
class Failure:
    """A run that is not done, why, and the end of its log."""

    run: Run
    reason: str
    log: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """The last line of its log, or the reason where there is none; runs may share it."""
        return self.log[-1] if self.log else self.reason


def describe_exit(code: int) -> str:
    """How a process ended, in words."""
    words = {
        IO_ERROR: "an input or output error of the system",
        DATA_ERROR: "a mistake in the data set",
    }
    if code in words:
        return words[code]
    return f"ended with exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"


def out_of_memory(failure: Failure) -> bool:
    """Whether a run ended because its device, or the machine, had too little memory."""
    text = "\n".join(failure.log).lower()
    killed = failure.reason == describe_exit(-signal.SIGKILL)  # as the system does then
    return killed or any(words in text for words in _MEMORY)


def alike(failed: Run, pending: Iterable[Run], in_data: bool) -> list[Run]:
    """Return the pending runs that the same mistake of the user would end.

    A mistake in the data set ends all runs on it, any other the same run with other seeds: they are
    averaged, and a fix changes them all.
    """
    if in_data:
        return [run for run in pending if run.dataset == failed.dataset]
    return [run for run in pending if replace(run, seed=failed.seed) == failed]


def report_failures(project: Project, failures: Sequence[Failure]) -> str:
    """All causes with how many runs they ended, the end of a log, and how to repeat a run alone."""
    causes: dict[str, list[Failure]] = {}
    for failure in failures:
        causes.setdefault(failure.cause, []).append(failure)
    lines = [f"{len(failures)} of the runs failed:"]
    for members in causes.values():
        first = members[0]
        lines += ["", f"{first.run}: {first.reason}"]
        lines += [f"    | {line}" for line in first.log]
        if len(members) > 1:
            lines.append(f"    and {len(members) - 1} more for the same reason")
        lines.append(f"    To retry: {project.shell_command(first.run)}")
    return "\n".join(lines)
