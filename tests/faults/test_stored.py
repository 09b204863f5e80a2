"""A wrong file of a run stops neither page nor table: it is named, and counts for nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coop_cmp
from coop_cmp import cli
from coop_cmp.errors import UserError
from coop_cmp.report.summary import summary
from coop_cmp.runs.grid import Grid
from coop_cmp.runs.outputs import OUTCOMES_FILE, content_digest
from coop_cmp.runs.project import Project
from coop_cmp.runs.records import write_results
from tests.conftest import FOLDER
from tests.faults.file_cases import UNPACKED, bomb
from tests.faults.test_own_folders import make as class_folders
from tests.made_runs import finish_with, write_run

DAMAGES = {
    "nothing": Path.touch,
    "text": lambda file: file.write_text("{"),
    "a pipe": os.mkfifo,
}
OUTCOMES: dict[str, Any] = {
    "confidence": lambda values: 5 * values,
    "predicted": lambda values: np.roll(values, 1),
    "labels": lambda values: -values,
    "nll": lambda values: np.append(np.nan, values[1:]),
}


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The directory of the first of two seeds."""
    for seed, scale in ((1, 2.0), (2, 1.0)):
        logits = scale * np.eye(3)
        write_run(tmp_path / f"seed{seed}", {"SEED": seed}, logits, np.arange(3), "abc")
    return tmp_path / "seed1"


def check_left_out(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Page and table name the file and show the other run."""
    output, name = file.parents[1], f"{file.parent.name}/{file.name}"
    assert cli.main(["report", str(output)]) == 0
    assert "report.html: 1 runs" in capsys.readouterr().out
    assert f"{name}: " in (output / "report.html").read_text()
    assert cli.main(["results", str(output)]) == 0
    shown = capsys.readouterr()
    if file.name == "predictions.npz":  # a table does not need them
        assert "2 runs" in shown.out
    else:
        assert "1 runs" in shown.out
        assert f"left out: {file}: " in shown.err


@pytest.mark.parametrize("name", ["results.json", "outcomes.npz", "predictions.npz"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_the_others_are_shown(first, capsys, name, damage):
    (first / name).unlink()
    DAMAGES[damage](first / name)
    check_left_out(first / name, capsys)


@pytest.mark.parametrize("name", ["outcomes.npz", "predictions.npz"])
def test_a_file_of_another_seed_is_named(first, capsys, name):
    shutil.copy(first.parent / "seed2" / name, first)
    check_left_out(first / name, capsys)


@pytest.mark.parametrize("words", [["train", "--help"], ["train", "--what"], ["train", "--seed"]])
def test_a_command_that_is_none_costs_nothing_but_the_images(first, capsys, words):
    write_command(first, words)
    assert cli.main(["report", str(first.parent), "--no-intervals"]) == 0
    assert "2 runs" in capsys.readouterr().out


def test_a_page_writes_nothing_where_a_run_says_that_its_images_are(first, tmp_path):
    folder = class_folders(tmp_path / "pets")
    words = ["train", "--trainer", "CoOp", "--backbone", "GlyphCLIP", "--root", str(folder)]
    write_command(first, [*words, *FOLDER, "DATASET.ALLOW_NEW_SPLIT", "True"])
    assert cli.main(["report", str(first.parent)]) == 0
    assert not (folder / "split.json").exists()


def write_command(folder: Path, words: list[str]) -> None:
    """Let a run say that this command began it."""
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "command": words}))


def test_where_nothing_is_left_the_page_says_why(first, capsys):
    shutil.rmtree(first.parent / "seed2")
    (first / "results.json").write_text("{")
    assert cli.main(["report", str(first)]) == 2
    error = capsys.readouterr().err
    assert "there are no complete runs below it (left out: " in error
    assert "results.json: not a JSON file" in error


def test_a_page_is_not_written_in_the_place_of_a_pipe(first, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert cli.main(["report", str(first), "--to", str(tmp_path / "pipe")]) == 2
    assert (tmp_path / "pipe").is_fifo()
    assert "pipe: not a regular file" in capsys.readouterr().err


def test_a_page_shows_a_title_that_is_no_text(first, tmp_path):
    assert cli.main(["report", str(first), "--title", "a \udcff", "--no-intervals"]) == 0
    assert "<title>a \\udcff" in (first / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("array", OUTCOMES)
def test_changed_outcomes_count_for_nothing(first, capsys, array):
    change_outcomes(first / OUTCOMES_FILE, array)
    check_left_out(first / OUTCOMES_FILE, capsys)


@pytest.mark.parametrize("array", ["confidence", "labels", "nll"])
def test_outcomes_out_of_range_count_for_nothing_whatever_the_record_says(first, capsys, array):
    change_outcomes(first / OUTCOMES_FILE, array)
    record_digest(first)
    check_left_out(first / OUTCOMES_FILE, capsys)


def test_outcomes_that_would_fill_the_memory_are_not_unpacked(first, capsys):
    bomb(first / OUTCOMES_FILE)
    record_digest(first)
    check_left_out(first / OUTCOMES_FILE, capsys)
    assert f"bytes that unpack to {UNPACKED:,}" in (first.parent / "report.html").read_text()


def record_digest(folder: Path) -> None:
    """Let the record of a run name its outcomes as they are now."""
    record = json.loads((folder / "results.json").read_text())
    record["files"][OUTCOMES_FILE] = content_digest((folder / OUTCOMES_FILE).read_bytes())
    write_results(folder / "results.json", record)


def change_outcomes(file: Path, array: str) -> None:
    arrays = dict(np.load(file))
    arrays[array] = OUTCOMES[array](arrays[array])
    np.savez(file, **arrays)


def test_a_sweeps_table_leaves_a_damaged_run_out(tmp_path):
    project, runs = Project(tmp_path), Grid(("digits",), ("CoOp",), seeds=(1, 2)).runs()
    for run in runs:
        finish_with(project, run, np.full(4, 0.9), np.arange(4) > run.seed)
    (project.directory(runs[0]) / OUTCOMES_FILE).write_bytes(b"")
    frame = project.frame(runs)
    assert re.search(r"^\| CoOp +\| 2 ", summary(frame), re.MULTILINE)
    (reason,) = frame.attrs["reasons"].values()
    assert OUTCOMES_FILE in reason


def test_class_names_that_the_record_does_not_know_are_refused(run, tmp_path):
    run("run")
    path = tmp_path / "run/predictions.npz"
    arrays = dict(np.load(path))
    arrays["classnames"] = arrays["classnames"][::-1]
    np.savez(path, **arrays)
    with pytest.raises(UserError, match=r"predictions\.npz"):
        coop_cmp.load(tmp_path / "run")


def test_the_name_of_a_data_set_is_no_mathematics(tmp_path):
    write_run(tmp_path / "odd", {"DATASET.NAME": "$x_{$ & λ"}, np.eye(3), np.arange(3), "abc")
    assert cli.main(["figures", str(tmp_path / "odd"), "--formats", "svg"]) == 0
    assert list((tmp_path / "odd/figures").iterdir())
