"""Runs that are not there: not finished, not readable, or a seed that only others have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from coop_cmp.errors import UserError
from coop_cmp.report.page.rows import Row
from coop_cmp.runs import RESULTS_FILE, Identity, read_identity
from coop_cmp.runs.identity import CALIBRATOR, RUN_FILE
from coop_cmp.runs.project import Project, to_copy
from coop_cmp.runs.run import Run

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
        """Ready for JSON."""
        return asdict(self)


def find_missing(
    project: Project | None, rows: Sequence[Row], problems: Sequence[str]
) -> list[Missing]:
    """All runs that a reader of the page would expect, and that have no results.

    Args:
        project: The checkout that can do them; without one nobody knows the commands.
        problems: What could not be read, each beginning with the path.
    """
    output = project.output if project else None
    trained = {fact["digest"]: fact["directory"] for row in rows for fact in row.facts}
    found: dict[str, Missing] = {}
    for problem in problems:
        folder = str(Path(problem.partition(": ")[0]).parent)
        found[folder] = Missing(folder, problem, _again(project, folder, trained))
    for folder in unfinished(output) if output else ():
        reason = f"not finished: {last_words(folder)}"
        found.setdefault(folder, Missing(folder, reason, _again(project, folder, trained)))
    for row, seed in missing_seeds(rows):
        like = row.first["directory"]
        folder = _of_seed(like, row.first["seed"], seed)
        command = _again(project, like, trained, seed)
        reason = f"seed {seed} is missing, other methods have it"
        found.setdefault(folder, Missing(folder, reason, command))
    return list(found.values())


def unfinished(output: Path) -> Iterator[str]:
    """Directories that a run has claimed and left without results."""
    for folder, subfolders, files in os.walk(output):
        subfolders.sort()
        if RUN_FILE in files and RESULTS_FILE not in files:
            yield folder


def last_words(folder: str) -> str:
    """The last line of a run's log."""
    for name in LOGS:
        path = Path(folder, name)
        if path.is_file():
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_END))
                lines = file.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]
    return "it left no log"


def missing_seeds(rows: Sequence[Row]) -> Iterator[tuple[Row, int]]:
    """Rows with seeds that they lack and others with the same test set and shots have."""
    known: dict[Any, set[int]] = {}
    learned = [row for row in rows if row.first["trainable"]]
    for row in learned:
        known.setdefault(_place(row), set()).update(fact["seed"] for fact in row.facts)
    for row in learned:
        have = {fact["seed"] for fact in row.facts}
        yield from ((row, seed) for seed in sorted(known[_place(row)] - have))


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row.first[name] for name in ("test_set", "trained_on", "backbone", "shots"))


def _of_seed(folder: str, known: int, wanted: int) -> str:
    """The directory of another seed; of a run with a name of its own, that name and the seed."""
    name = Path(folder).name
    if name == f"seed{known}":
        return str(Path(folder).with_name(f"seed{wanted}"))
    return str(Path(folder).with_name(f"{name}_seed{wanted}"))


def _again(
    project: Project | None, folder: str, trained: Mapping[str, str], seed: int | None = None
) -> str:
    """The command for a run like the one in a folder, "" where that cannot be told."""
    try:
        identity = read_identity(folder)
        if project is None or identity is None:
            return ""
        model = ""
        if identity.training is not None:
            model = trained[identity.training.digest]
        known = identity.settings["SEED"]
        if seed is not None:
            folder = _of_seed(folder, known, seed)
            model = _of_seed(model, known, seed) if model else ""
            identity = replace(identity, settings={**identity.settings, "SEED": seed})
        return command_of(project, identity, folder, model)
    except (UserError, KeyError):
        return ""


def command_of(project: Project, identity: Identity, folder: str, model: str = "") -> str:
    """The call of ``coop-cmp train`` that does a run of these settings.

    Args:
        model: For an evaluation the directory of the training.

    Returns:
        "" where there is no config of such a data set, or a training does not do such runs.
    """
    settings = identity.settings
    files = {name: file for file, name in project.dataset_names.items()}
    dataset = files.get(settings["DATASET.NAME"])
    if dataset is None or any(key.startswith(CALIBRATOR) for key in settings):
        return ""
    trainer, backbone = settings["TRAINER.NAME"], settings["MODEL.BACKBONE.NAME"]
    shots = settings.get("DATASET.NUM_SHOTS", -1)
    run = Run(dataset, trainer, backbone, shots, settings["SEED"])
    usual = project.identity(run).settings
    options = {k: str(v) for k, v in settings.items() if k not in usual or usual[k] != v}
    run = replace(run, options=tuple(options.items()))
    if project.identity(run).settings != settings:
        return ""
    words = project.command(run)
    words[words.index("--output-dir") + 1] = folder
    if model:
        place = words.index("--output-dir")
        words[place:place] = ["--eval-only", "--model-dir", model]
    return to_copy(words)
