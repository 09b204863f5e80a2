"""Stored calibrators: new images get the probabilities that the calibrated run itself has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.special import softmax

import coop_cmp
from coop_cmp.calibrate.methods import CALIBRATORS
from coop_cmp.calibrate.storage import read_calibrator
from coop_cmp.errors import UserError
from coop_cmp.runs import read_predictions
from coop_cmp.runs.identity import Identity
from tests.predict.test_predict import calibrated

BASE, NEW = ["bird", "cat"], ["dog", "tree"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Noisy grey squares of four classes, which differ a little in their shade."""
    draw = np.random.default_rng(0)
    for part, count in (("train", 4), ("val", 12), ("test", 4)):
        for shade, name in enumerate([*BASE, *NEW]):
            folder = tmp_path / "data" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draw.normal(100 + 60 * shade, 40, (32, 32, 3)).clip(0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "data"


@pytest.fixture
def trained(run, tmp_path) -> Path:
    """A training on the base classes with all the tests that calibrators need, as in a sweep."""
    folder = tmp_path / "run"
    tests = ("--eval-only", f"--model-dir={folder}")
    base = ("DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base")
    new = ("DATASET.SUBSAMPLE_CLASSES", "new")
    run("run", *base, "OPTIM.LR", "0.1")
    run("val", *tests, *base, "TEST.SPLIT", "val")
    run("new", *tests, *new)
    run("zero_base", *base, trainer="ZeroshotCLIP")
    run("zero_new", *new, trainer="ZeroshotCLIP")
    return folder


def test_every_calibrator_does_on_new_images_what_it_did_in_its_run(
    trained, pictures, tmp_path, monkeypatch
):
    monkeypatch.setattr("coop_cmp.calibrate.dac.SAME_CLASS", 0)  # random towers tell little apart
    for method in CALIBRATORS:
        tested, names = ("new", NEW) if method == "dac" else ("run", BASE)
        place = calibrated(tmp_path / tested, tmp_path / method, method, "val")
        expected = read_predictions(place / "predictions.npz")
        plain = read_predictions(tmp_path / tested / "predictions.npz")
        assert abs(expected.logits - plain.logits).max() > 1e-3, method
        images = [path for name in names for path in sorted((pictures / "test" / name).iterdir())]
        answers = coop_cmp.load(trained, calibrator=place).predict(images)
        assert answers.classnames == expected.classnames == names
        wanted = softmax(expected.logits.astype(np.float64), axis=1)
        np.testing.assert_allclose(answers.probabilities, wanted, atol=1e-5, err_msg=method)
    refuse_others(trained, tmp_path)


def refuse_others(trained: Path, folder: Path) -> None:
    """Other classes, and another model than the one that was calibrated."""
    with pytest.raises(UserError, match="each of the classes bird, cat, and cannot be used for"):
        coop_cmp.load(trained, calibrator=folder / "vector", classnames=NEW)
    sals = coop_cmp.load(trained, calibrator=folder / "sals", classnames=NEW)
    assert sals.zero_shot.dm.dataset.classnames == NEW
    stored = read_calibrator(folder / "vector")
    assert (stored.calibrator.labels, stored.classnames) == (8, BASE)
    with pytest.raises(UserError, match=r"another model than the one .* \(--redo\)"):
        stored.refuse_other(stored.run, "what was learned later")
    other = Identity({**stored.run.settings, "TRAINER.NAME": "KgCoOp"})
    with pytest.raises(UserError, match="the test of another run"):
        read_calibrator(folder / "dac").refuse_other(other, stored.checkpoint)
