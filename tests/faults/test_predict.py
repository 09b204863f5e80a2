"""Using a trained run, with images and classes of all kinds."""

from __future__ import annotations

import json
import os

import pytest

from coop_cmp import cli


@pytest.fixture
def folder(run, tmp_path):
    run("run")
    return tmp_path / "run"


def test_what_is_no_image_in_a_folder_is_left_out(folder, pictures, capsys):
    """A pipe would block, and a link that leads nowhere is no reason to stop."""
    images = pictures / "test/cat"
    os.mkfifo(images / "pipe.png")
    (images / "folder.png").mkdir()
    (images / "gone.png").symlink_to("nowhere")
    assert cli.main(["predict", str(folder), str(images), "--csv", "--top", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 4


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a dog", "a_dog"], "'a dog' and 'a_dog' read the same in a prompt"),
        (["", "a"], "classes: '' is no name"),
        (["\x1b[31m", "a"], r"classes: '\x1b[31m' is no name"),
        (["\udcff", "a"], r"the name '\udcff' is not UTF-8"),
    ],
)
def test_classes_that_cannot_be_told_apart_or_shown_are_refused(folder, names, words, capsys):
    assert cli.main(["predict", str(folder), str(folder), "--classes", *names]) == 2
    assert words in capsys.readouterr().err


def test_of_two_classes_with_one_name_the_likelier_is_shown(folder, pictures, capsys, monkeypatch):
    """Published lists of names have such, which a run cannot tell apart by name."""
    monkeypatch.setattr("coop_cmp.predict.predictor._classes", lambda *_: ["cat", "dog", "cat"])
    call = ["predict", str(folder), str(pictures / "test/cat/0.png")]
    assert cli.main([*call, "--csv"]) == 0
    rows = [line.split(",")[-2:] for line in capsys.readouterr().out.splitlines()[1:]]
    assert cli.main([*call, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    likeliest = {name: float(p) for name, p in sorted(rows, key=lambda row: float(row[1]))}
    assert len(rows) == 3
    assert found["classes"] == pytest.approx(likeliest, abs=1e-6)


def test_a_calibrator_that_is_a_pipe_is_refused(folder, tmp_path, capsys):
    os.mkfifo(tmp_path / "calibrator.safetensors")
    assert cli.main(["predict", str(folder), str(folder), f"--calibrator={tmp_path}"]) == 2
    assert "there is no calibrator" in capsys.readouterr().err


def test_a_run_is_not_exported_under_a_name_that_is_no_text(folder, tmp_path, capsys):
    assert cli.main(["export", str(folder), str(tmp_path / "\udcff.safetensors")]) == 2
    assert "not UTF-8; rename it" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*_model"))
