"""Runs that are not there: not finished, not readable, or a seed that only others have."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coop_cmp.report.groups import Group
from coop_cmp.runs.identity import RUN_FILE, read_command
from coop_cmp.runs.records import RESULTS_FILE

LOGS = ("sweep.log", "log.txt")


def find_missing(
    output: Path | None, groups: Sequence[Group], problems: Sequence[str]
) -> list[dict[str, str]]:
    """Return the directories of expected runs without results, with the reason and the command.

    Args:
        output: Where runs may be that have begun and not finished.
        problems: What could not be read, each beginning with the path.
    """
    reasons = {str(Path(text.partition(": ")[0]).parent): text for text in problems}
    for folder in unfinished(output) if output else ():
        reasons.setdefault(folder, f"not finished: {last_words(folder)}")
    commands = {folder: read_command(folder) for folder in reasons}
    for group, seed in missing_seeds(groups):
        other, known = group.runs[0].folder, group.row["seed"]
        named = other.name == f"seed{known}"
        place = other.with_name(f"seed{seed}" if named else f"{other.name}, seed {seed}")
        reasons.setdefault(str(place), f"seed {seed} is missing, other methods have it")
    return [
        {"directory": folder, "reason": reason, "command": shlex.join(commands.get(folder, []))}
        for folder, reason in reasons.items()
    ]


def unfinished(output: Path) -> Iterator[str]:
    """Yield directories that a run has claimed and left without results."""
    folders = sorted(path.parent for path in output.rglob(RUN_FILE))
    yield from (str(folder) for folder in folders if not (folder / RESULTS_FILE).exists())


def last_words(folder: str) -> str:
    """Return the last line of a run's log."""
    for name in LOGS:
        path = Path(folder, name)
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
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
