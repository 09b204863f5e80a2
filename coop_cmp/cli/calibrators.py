"""Calibrated runs of a table: made from finished ones, in this process."""

from __future__ import annotations

from collections.abc import Iterable

from coop_cmp.errors import UserError
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run


def calibrate_runs(project: Project, runs: Iterable[Run]) -> list[str]:
    """Calibrate what is not calibrated yet; why some could not be."""
    from coop_cmp.calibrate.methods import Sources, calibrate
    from coop_cmp.calibrate.runs import Archive, store_calibrated
    from coop_cmp.runs.stored import StoredRun

    archive = Archive(project.output)
    problems: dict[str, None] = {}
    for run in runs:
        plain = run.uncalibrated
        if plain is None or project.state(run).kind == "done":
            continue
        try:
            stored = StoredRun.of(project.directory(plain))
            method = run.calibrator.partition("-")[0]
            result = calibrate(method, stored, Sources(archive, run.labels))
            store_calibrated(stored, result, project.directory(run), redo=True)
        except UserError as error:
            problems[f"{run}: {error}"] = None
    return list(problems)
