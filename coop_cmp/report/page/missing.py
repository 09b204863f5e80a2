"""Runs that are not there: not finished, not readable, or a seed that only others have."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coop_cmp.report.groups import Group
from coop_cmp.runs.identity import RUN_FILE, read_command
from coop_cmp.runs.records import RESULTS_FILE

LOGS = ("sweep.log", "log.txt")
LOG_END = 4096


@dataclass(frozen=True)
class Missing:
    """A run without results.

    Attributes:
        directory: Where its results would be.
        reason: Why they are not, as far as anyone can tell.
        command: What makes them, "" where nobody knows.
    """

    directory: str
    reason: str
    command: str

    def as_record(self) -> dict[str, str]:
        """Return it ready for JSON."""
        return asdict(self)


def find_missing(
    output: Path | None, groups: Sequence[Group], problems: Sequence[str]
) -> list[Missing]:
    """Return all runs that a reader of the page would expect, and that have no results.

    Args:
        output: Where runs may be that have begun and not finished.
        problems: What could not be read, each beginning with the path.
    """
    found: dict[str, Missing] = {}
    for problem in problems:
        folder = str(Path(problem.partition(": ")[0]).parent)
        found[folder] = Missing(folder, problem, shlex.join(read_command(folder)))
    for folder in unfinished(output) if output else ():
        reason = f"not finished: {last_words(folder)}"
        found.setdefault(folder, Missing(folder, reason, shlex.join(read_command(folder))))
    for group, seed in missing_seeds(groups):
        folder, command = with_seed(str(group.runs[0].folder), group.row["seed"], seed)
        reason = f"seed {seed} is missing, other methods have it"
        found.setdefault(folder, Missing(folder, reason, command))
    return list(found.values())


def unfinished(output: Path) -> Iterator[str]:
    """Yield directories that a run has claimed and left without results."""
    for folder, subfolders, files in os.walk(output):
        subfolders.sort()
        if RUN_FILE in files and RESULTS_FILE not in files:
            yield folder


def last_words(folder: str) -> str:
    """Return the last line of a run's log."""
    for name in LOGS:
        path = Path(folder, name)
        if path.is_file():
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_END))
                lines = file.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]
    return "it left no log"


def missing_seeds(groups: Sequence[Group]) -> Iterator[tuple[Group, int]]:
    """Yield groups with seeds that they lack and others with the same test set and shots have."""
    known: dict[Any, set[int]] = {}
    for group in groups:
        known.setdefault(group.place, set()).update(group.seeds)
    for group in groups:
        if group.seeds:
            yield from ((group, s) for s in sorted(known[group.place] - set(group.seeds)))


def with_seed(folder: str, known: int, wanted: int) -> tuple[str, str]:
    """Return the directory and the command of a run with another seed than the one in a folder.

    The command is that of the known run with its seed and its directories changed; "" where one of
    them is not in it.
    """
    place = _of_seed(folder, known, wanted)
    words = read_command(folder)
    changes = {"--seed": str(wanted), "--output-dir": place}
    if "--model-dir" in words:
        changes["--model-dir"] = _of_seed(words[words.index("--model-dir") + 1], known, wanted)
    for flag, value in changes.items():
        if flag not in words:
            return place, ""
        words[words.index(flag) + 1] = value
    return place, shlex.join(words)


def _of_seed(folder: str, known: int, wanted: int) -> str:
    """The directory of another seed; of a run with a name of its own, that name and the seed."""
    name = Path(folder).name
    if name == f"seed{known}":
        return str(Path(folder).with_name(f"seed{wanted}"))
    return str(Path(folder).with_name(f"{name}_seed{wanted}"))
