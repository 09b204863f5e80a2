"""Any byte or value of run.json, jobs.json and a job's report changed: the same, or an error."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coop_cmp.errors import UserError
from coop_cmp.runs.grid import Grid
from coop_cmp.runs.identity import RUN_FILE, Identity, read_identity
from coop_cmp.runs.project import Project
from coop_cmp.sweep.failures import Failure
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.slurm import queue
from coop_cmp.sweep.slurm.submission import Submission, read_all, submit
from tests.faults.changes import other_bytes, other_trees, tries

RUNS = Grid(("digits",), ("CoOp_CMP",), seeds=(1, 2), targets=("digits_noise",)).runs()


def check_damages(file: Path, read: Callable[[], Any], kills: int) -> None:
    """Reading gives the same or names the file, whatever is done to it."""
    whole, expected = file.read_bytes(), read()
    trees = other_trees(json.loads(whole)).map(lambda tree: json.dumps(tree).encode())

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            found = read()
        except UserError as error:
            found = expected if str(file) in str(error) else error
        assert found == expected

    tries(100 * kills, other_bytes(whole) | trees, check)


def test_run_json(tmp_path, kills):
    project = Project(tmp_path)
    file = project.directory(RUNS[1]) / RUN_FILE
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(project.identity(RUNS[1]).as_record()))
    check_damages(file, lambda: read_identity(file.parent), kills)


@pytest.mark.parametrize("training", [[], {}, 0, "", False])
def test_a_training_that_is_none_is_no_training(tmp_path, training):
    """The digest of a run is the same without one."""
    record = Project(tmp_path).identity(RUNS[0]).as_record()
    assert record["training"] is None
    with pytest.raises(ValueError, match="its identity is incomplete"):
        Identity.from_record({**record, "training": training})


@pytest.fixture
def record(tmp_path, monkeypatch) -> Submission:
    monkeypatch.setattr(queue, "submit", lambda script, options: 7)
    return submit(Project(tmp_path), Settings(), [RUNS[:2], RUNS[2:]], {}, 2)[0]


def test_jobs_json(tmp_path, record, kills):
    def read() -> Any:
        return [(one.jobs, one.settings, one.project) for one in read_all(Project(tmp_path))]

    assert read() == [([RUNS[:2], RUNS[2:]], Settings(), Project(tmp_path))]
    check_damages(record.folder / "jobs.json", read, kills)


def test_a_pipe_for_jobs_json(tmp_path, record):
    (record.folder / "jobs.json").unlink()
    os.mkfifo(record.folder / "jobs.json")
    with pytest.raises(OSError, match=r"not a regular file.*jobs\.json"):
        read_all(Project(tmp_path))


def test_the_report_of_a_job(record, kills):
    record.write_report(0, 1, [Failure(RUNS[0], "why", ("a line",))])
    file = record.folder / "0.json"
    check_damages(file, lambda: (record.report(0), record.failure(0, RUNS[0])), kills)
