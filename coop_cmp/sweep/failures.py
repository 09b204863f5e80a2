"""Why runs fail, and how to say it once."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from coop_cmp.errors import IO_ERROR
from coop_cmp.results.project import Project
from coop_cmp.results.run import Run

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
    if code == IO_ERROR:
        return "an input or output error of the system"
    return f"ended with exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"


def out_of_memory(failure: Failure) -> bool:
    """Whether a run ended because its device, or the machine, had too little memory."""
    text = "\n".join(failure.log).lower()
    killed = failure.reason == describe_exit(-signal.SIGKILL)  # as the system does then
    return killed or any(words in text for words in _MEMORY)


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
        lines.append(f"    again: {project.shell_command(first.run)}")
    return "\n".join(lines)
