"""coop_cmp/runs/frame.py: all runs as one table."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coop_cmp.errors import UserError
from coop_cmp.report.summary import summary
from coop_cmp.runs import load
from coop_cmp.runs.pairs import Baselines
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from tests.commands import command
from tests.made_runs import finish, write_run

main = command("results")

RUN = Run("digits", "CoOp_CMP", "GlyphCLIP", 8, 2, 0.05, "log")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    finish(project, RUN, accuracy=0.8, ece=0.1)
    finish(project, replace(RUN, dataset="digits_blur", source="digits"), accuracy=0.6)
    finish(project, Run("digits", "ZeroshotCLIP", "GlyphCLIP"), accuracy=0.7)
    return project


def test_a_row_has_labels_metrics_settings_and_circumstances(project):
    frame = load(project.output)
    assert sorted(frame.index) == [
        "digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.05_log/seed2",
        "digits/ZeroshotCLIP/GlyphCLIP/seed1",
        "digits_blur/CoOp_CMP/GlyphCLIP_8shots_lambda0.05_log_from_digits/seed2",
    ]
    row = frame.loc["digits_blur/CoOp_CMP/GlyphCLIP_8shots_lambda0.05_log_from_digits/seed2"]
    expected = {
        "dataset": "DigitsBlur",
        "trained_on": "Digits",
        "trainer": "CoOp_CMP",
        "method": "CoOp",
        "term": "CMP",
        "lambda": 0.05,
        "form": "log",
        "calibrator": "",
        "backbone": "GlyphCLIP",
        "shots": 8,
        "classes": "all",
        "split": "test",
        "seed": 2,
        "accuracy": 0.6,
        "OPTIM.LR": 0.003,
        "TRAINER.CMP.LAMBDA": 0.05,
        "seconds.total": 2.0,
        "machine.host": "here",
    }
    assert {name: row[name] for name in expected} == expected
    assert frame.loc["digits/ZeroshotCLIP/GlyphCLIP/seed1", "shots"] is None


@pytest.mark.parametrize(("shots", "shown"), [(1, 1), (-1, None)])
def test_one_shot_is_a_number_of_shots_and_all_images_are_none(project, shots, shown):
    finish(project, replace(RUN, shots=shots), accuracy=0.5)
    (row,) = load(project.output).query("accuracy == 0.5").to_dict("records")
    assert row["shots"] == shown


def test_folders_of_the_same_kind_are_data_sets_of_their_own(tmp_path):
    logits, labels = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 3
    for folder in ("birds", "boats"):
        for trainer in ("CoOp", "CoOp_CMP"):
            settings = {"DATASET.NAME": "ImageFolder", "TRAINER.NAME": trainer}
            settings |= {"DATASET.TITLE": folder, "DATASET.CONTENT": f"digest of {folder}"}
            write_run(tmp_path / folder / trainer, settings, logits, labels, "xyz")
    frame = load(tmp_path)
    assert sorted(set(frame["dataset"])) == sorted(set(frame["trained_on"])) == ["birds", "boats"]
    assert frame["group"].nunique() == 4
    assert "ImageFolder" not in summary(frame)
    baselines = Baselines(frame.to_dict("records"))
    for row in frame.query("term == 'CMP'").to_dict("records"):
        assert baselines.of(row)["dataset"] == row["dataset"]


@pytest.mark.parametrize("change", ["images", "labels", "names"])
def test_other_images_labels_or_names_are_never_averaged_or_paired(tmp_path, change):
    logits, labels = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 3
    write_run(tmp_path / "a", {}, logits, labels, "xyz")
    write_run(tmp_path / "b", {"TRAINER.NAME": "CoOp_CMP"}, logits, labels, "xyz")
    names = [f"other {i}" for i in range(20)] if change == "images" else None
    labels = labels[::-1].copy() if change == "labels" else labels
    classes = "xyw" if change == "names" else "xyz"
    write_run(tmp_path / "c", {"SEED": 2}, logits, labels, classes, names=names)
    write_run(tmp_path / "d", {}, logits, labels, classes, names=names)
    frame = load(tmp_path)
    assert frame.loc["c", "group"] == frame.loc["d", "group"] != frame.loc["a", "group"]
    text = summary(frame.loc[["b", "d"]])
    assert "by CMP" not in text or "not the same images" in text


def test_a_directory_whose_name_is_not_text_is_read(tmp_path, capsys):
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    finish(Project(place), RUN)
    assert len(load(place)) == 1
    assert main([str(place)]) == 0
    assert main([str(tmp_path), "--csv"]) == 0


def test_the_csv_comes_back_as_the_frame(project, capsys):
    assert main([str(project.output), "--csv"]) == 0
    read = pd.read_csv(io.StringIO(capsys.readouterr().out), index_col="run")
    frame = load(project.output)
    assert list(read.index) == list(frame.index)
    assert read["accuracy"].tolist() == frame["accuracy"].tolist()
    assert read["OPTIM.LR"].tolist() == frame["OPTIM.LR"].tolist()


def test_an_empty_directory_has_no_rows_and_a_missing_one_is_named(tmp_path, capsys):
    assert main([str(tmp_path)]) == 0
    assert "0 runs" in capsys.readouterr().out
    with pytest.raises(UserError, match="nowhere: there is no such directory"):
        load(tmp_path / "nowhere")
