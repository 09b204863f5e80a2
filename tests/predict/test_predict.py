"""Predictions from trained runs: the same as in their tests, calibrated, and "don't know"."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import softmax

import coop_cmp
from coop_cmp.errors import UserError
from coop_cmp.predict.selective import Threshold, choose_threshold
from coop_cmp.runs.records import write_results
from tests.commands import command

main = command("predict")

calibrate = command("calibrate")

METHODS = ("CoOp_CMP", "CoCoOp", "ProDA", "MaPLe", "KgCoOp", "CLIPFT", "BPEFT", "TPT")
SMALL = {
    "MaPLe": ("TRAINER.MAPLE.PROMPT_DEPTH", "2"),
    "TPT": ("TRAINER.TPT.VIEWS", "4", "TRAINER.TPT.CONFIDENT", "0.5"),
}


@pytest.mark.parametrize("trainer", METHODS)
def test_test_images_get_the_logits_of_the_run_itself(trainer, run, pictures, tmp_path):
    expected, _ = run("run", *SMALL.get(trainer, ()), trainer=trainer)
    predicted = coop_cmp.load(tmp_path / "run").predict(pictures / "test")
    assert predicted.classnames == ["cat", "dog", "tree"]
    assert predicted.images[1] == str(pictures / "test/cat/1.png")
    np.testing.assert_allclose(predicted.logits, expected, atol=2e-5)
    np.testing.assert_allclose(predicted.probabilities, softmax(expected, axis=1), atol=2e-5)


@pytest.fixture
def trained(run, tmp_path) -> Path:
    run("run")
    return tmp_path / "run"


def test_images_in_memory_single_files_and_other_classes(trained, pictures):
    model = coop_cmp.load(trained)
    file = pictures / "test/dog/2.png"
    by_path = model.predict(str(file))
    in_memory = model.predict([Image.open(file), file])
    assert in_memory.images == ["0", str(file)]
    np.testing.assert_allclose(in_memory.logits, by_path.logits.repeat(2, axis=0), atol=1e-6)
    # The same prompts for classes that the run has not seen; those it has keep their logits.
    other = coop_cmp.load(trained, classnames=["dog", "aardvark"]).predict(file)
    assert other.classnames == ["dog", "aardvark"]
    np.testing.assert_allclose(other.logits[:, 0], by_path.logits[:, 1], atol=1e-5)


def calibrated(
    trained: Path, folder: Path, method: str = "temperature", labels: str = "fixed:2"
) -> Path:
    """What the calibrate command leaves of a run, from the runs beside it."""
    arguments = [method, str(trained), "--labels", labels, "--to", str(folder)]
    assert calibrate([*arguments, "--output", str(trained.parent)]) == 0
    return folder


def test_a_calibrated_run_is_a_calibrator_of_the_run_it_was_made_of(
    trained, run, pictures, tmp_path
):
    plain = coop_cmp.load(trained).predict(pictures / "test").logits
    folder = calibrated(trained, tmp_path / "T")
    half = coop_cmp.load(trained, calibrator=folder).predict(pictures / "test").logits
    np.testing.assert_allclose(half, plain / 2, atol=1e-6)
    twice = coop_cmp.load(trained, calibrator=lambda z: 2 * z).predict(pictures / "test").logits
    np.testing.assert_allclose(twice, plain * 2, atol=1e-5)
    run("other", "OPTIM.LR", "0.5")
    with pytest.raises(UserError, match=r"calibrates another run \(OPTIM\.LR is 0\.5"):
        coop_cmp.load(trained, calibrator=calibrated(tmp_path / "other", tmp_path / "b"))
    with pytest.raises(UserError, match="there is no calibrator"):
        coop_cmp.load(trained, calibrator=trained)
    with pytest.raises(UserError, match="load the run it was made from"):
        coop_cmp.load(folder)


def test_what_is_no_trained_run_is_refused(trained, run, tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        coop_cmp.load(tmp_path)
    run("test", "--eval-only", f"--model-dir={trained}")
    with pytest.raises(UserError, match="test of another run"):
        coop_cmp.load(tmp_path / "test")
    record = json.loads((trained / "results.json").read_text())
    write_results(trained / "results.json", record | {"checkpoint": "another"})
    with pytest.raises(UserError, match="of another model than the one beside it"):
        coop_cmp.load(trained)


def test_the_threshold_is_the_lowest_that_keeps_the_error():
    confidence = np.array([0.9, 0.8, 0.8, 0.7, 0.6, 0.5])
    correct = np.array([True, True, False, True, True, False])
    #   answers from 0.9: 0 of 1 wrong; 0.8: 1 of 3; 0.7: 1 of 4; 0.6: 1 of 5; 0.5: 2 of 6
    for error, expected in ((0.0, 0.9), (0.1, 0.9), (0.2, 0.6), (0.25, 0.6), (0.34, 0.5), (1, 0.5)):
        assert choose_threshold(confidence, correct, error).value == expected
    found = choose_threshold(confidence, correct, 0.2)
    assert (found.wrong, found.answered, found.total) == (1, 5, 6)
    none = choose_threshold(confidence, ~correct, 0.1)
    assert none.value == np.inf
    assert none.answered == 0
    with pytest.raises(UserError, match="a share from 0 to 1, got 5"):
        choose_threshold(confidence, correct, 5)


def test_the_bound_of_the_error_holds_as_often_as_it_says():
    # Without a wrong answer the bound has a closed form: 1 - 0.05^(1/n), about 3/n.
    assert Threshold(0.5, 0, 50, 60).at_most == pytest.approx(1 - 0.05 ** (1 / 50))
    draw = np.random.default_rng(0).binomial(40, 0.1, 4000)
    held = np.mean([Threshold(0.5, int(wrong), 40, 40).at_most >= 0.1 for wrong in draw])
    assert 0.94 <= held <= 1


def test_the_command_shows_lines_csv_and_json(trained, pictures, capsys):
    images = str(pictures / "test")
    expected = coop_cmp.load(trained).predict(images)
    assert main([str(trained), images, "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    name, probability = expected.top(1)[0][0]
    assert len(lines) == 12
    assert f"  {name} {probability:.1%}, " in lines[0]
    with pytest.raises(UserError, match="from 0 to 1, got 80"):
        main([str(trained), images, "--threshold", "80"])
    assert main([str(trained), images, "--csv", "--threshold", "0.999"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 12 * 3
    assert {row["answer"] for row in rows} == {"don't know"}
    total = sum(float(row["probability"]) for row in rows[:3])
    assert total == pytest.approx(1, abs=1e-5)
    arguments = [str(trained), images, "--json", "--max-error", "0.4", "--data", str(pictures)]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "validation images" in err
    listed = json.loads(out)
    threshold = coop_cmp.load(trained).threshold(0.4, pictures)
    assert threshold.total == 3
    for row, confidence in zip(listed, expected.confidence, strict=True):
        assert (row["answer"] is not None) == (confidence >= threshold.value)


def test_loading_a_run_keeps_the_threads_of_its_caller(trained, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        coop_cmp.load(trained)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("arguments", [["nowhere.png"], ["."]])
def test_images_that_are_not_there_are_named(arguments, trained, tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    with pytest.raises(UserError, match=r"no such image|no images to predict"):
        main([str(trained), *arguments])
