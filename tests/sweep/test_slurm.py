"""coop_cmp/sweep/slurm.py: runs as jobs of a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

import datasets  # noqa: F401 - registers them
from coop_cmp.errors import UserError
from coop_cmp.results.project import Project
from coop_cmp.sweep.grid import Grid
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.slurm import group, launch, parameters
from tests.sweep.conftest import behave, calls


def test_slurm_jobs_keep_a_training_with_its_evaluations():
    runs = Grid(("digits",), ("CoOp",), seeds=(1, 2), targets=("digits_noise",)).runs()
    assert [[run.dataset for run in job] for job in group(runs)] == [["digits", "digits_noise"]] * 2
    assert parameters("partition=gpu gpus_per_node=1") == {
        "slurm_partition": "gpu",
        "slurm_gpus_per_node": 1,
    }
    with pytest.raises(UserError, match="key=value"):
        parameters("gpu")


class FakeExecutor:
    """As much of submitit as a sweep uses; the wait for the second job is interrupted."""

    cancelled: ClassVar[list[str]] = []

    def __init__(self, folder: Path, cluster: str) -> None:
        pass

    def update_parameters(self, **parameters: object) -> None:
        pass

    def map_array(self, work, projects, settings, jobs):
        return [FakeJob(f"7_{index}") for index in range(len(jobs))]


class FakeJob:
    def __init__(self, job_id: str) -> None:
        self.job_id = job_id

    def result(self):
        if self.job_id == "7_1":
            raise KeyboardInterrupt
        return []

    def cancel(self, check: bool) -> None:
        FakeExecutor.cancelled.append(self.job_id)


def test_an_interrupted_sweep_cancels_its_slurm_jobs(root, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=FakeExecutor))
    runs = Grid(("digits",), ("CoOp",), seeds=(1, 2, 3)).runs()
    with pytest.raises(KeyboardInterrupt):
        launch(Project(root, root / "output"), Settings(), runs, "partition=gpu")
    assert FakeExecutor.cancelled == ["7_0", "7_1", "7_2"]
    assert "Waiting for 3 Slurm jobs" in capsys.readouterr().out


def test_slurm_that_is_not_there_or_does_not_know_a_key_is_a_users_mistake(root, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(root))  # without srun, also on a cluster
    project, runs = Project(root, root / "output"), Grid(("digits",), ("CoOp",)).runs()
    with pytest.raises(UserError, match='--slurm: Could not detect "srun"'):
        launch(project, Settings(), runs, "partition=gpu")
    with pytest.raises(UserError, match="--slurm: Unknown argument 'queue'"):
        launch(project, Settings(), runs, "queue=gpu", cluster="local")
    assert calls(root) == []


@pytest.mark.parametrize("text", ["time=90", "timeout_min=90"])
def test_jobs_ask_for_the_time_that_was_given_and_a_refusal_is_shown(root, monkeypatch, text):
    pytest.importorskip("submitit")
    folder = root / "bin"
    folder.mkdir()
    (folder / "srun").write_text("")
    (folder / "sbatch").write_text(
        f"#!/bin/sh\ncat $1 > {root}/job.sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n"
    )
    for file in folder.iterdir():
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    runs = Grid(("digits",), ("CoOp",), seeds=(1, 2)).runs()
    with pytest.raises(UserError, match=r"--slurm: .*invalid partition"):
        launch(Project(root, root / "output"), Settings(), runs, text)
    assert "#SBATCH --time=90\n" in (root / "job.sh").read_text()


def test_slurm_jobs_do_their_runs_and_report_failures(root):
    pytest.importorskip("submitit")
    behave(root, {2: ["crash"]})
    project = Project(root, root / "output")
    runs = Grid(("digits",), ("CoOp",), seeds=(1, 2), targets=("digits_noise",)).runs()
    failures = launch(project, Settings(time_limit=60), runs, "partition=gpu", cluster="local")
    assert [str(failure.run) for failure in failures] == [
        "digits/CoOp/GlyphCLIP_8shots/seed2",
        "digits_noise/CoOp/GlyphCLIP_8shots_from_digits/seed2",
    ]
    assert "the loss exploded" in failures[0].log[-1]
    assert project.state(runs[1]).kind == "done"
