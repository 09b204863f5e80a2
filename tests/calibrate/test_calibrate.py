"""``coop-cmp calibrate``: what it finds, what it refuses, and the runs it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coop_cmp import runs as results
from coop_cmp.calibrate import class_factors, fit_temperature, fit_vector, scale_to_zero_shot
from coop_cmp.errors import UserError
from coop_cmp.runs import read_predictions, read_results
from coop_cmp.runs.stored import StoredRun
from tests.calibrate.test_posthoc import sample
from tests.commands import command
from tests.made_runs import write_run

main = command("calibrate")

CLASSES = 8
TEXT = np.random.default_rng(9).normal(size=(4, CLASSES, 6))


class Output:
    """An output directory with made-up runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self,
        name: str,
        predictions: tuple[np.ndarray, np.ndarray],
        training: str = "",
        text: np.ndarray | None = None,
        names: str = "thing",
        **settings: Any,
    ) -> Path:
        """A finished run; ``training`` names the run that it tests."""
        keys = {key.replace("__", "."): value for key, value in settings.items()}
        logits, labels = predictions
        part = keys.get("TEST.SPLIT", "test")
        return write_run(
            self.folder(name),
            {"DATASET.FOLD": "", **keys},
            *predictions,
            [f"{names} {k}" for k in range(logits.shape[1])],
            training=StoredRun.of(self.folder(training)).identity if training else None,
            names=[f"{part}{i}" for i in range(len(labels))],
            text_features=text,
            notes=["a note"],
        )

    def folder(self, name: str) -> Path:
        return self.root / "digits" / "CoOp" / name / "seed1"


def scaled(n: int, seed: int, factor: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    logits, labels = sample(n, CLASSES, seed)
    return (factor * logits).astype(np.float32), labels


@pytest.fixture
def output(tmp_path: Path) -> Output:
    output = Output(tmp_path)
    output.add("plain", scaled(1000, 1))
    output.add("plain_val", scaled(200, 2), "plain", TEST__SPLIT="val")
    return output


def test_a_run_in_a_directory_of_its_own_stays_among_its_neighbours(output, tmp_path, capsys):
    place = tmp_path / "checkout"
    place.mkdir()
    for name, new in (("plain", "out"), ("plain_val", "validation")):
        output.folder(name).rename(place / new)
    assert main(["temperature", str(place / "out")]) == 0
    assert f"{place / 'out_temperature'}: accuracy" in capsys.readouterr().out
    assert sorted(path.name for path in place.iterdir()) == ["out", "out_temperature", "validation"]


def test_the_result_is_a_run_of_its_own_in_the_frame(output, capsys):
    run = output.folder("plain")
    before = (run / "results.json").read_bytes()
    assert main(["temperature", str(run)]) == 0
    printed = capsys.readouterr().out
    place = output.folder("plain_temperature")
    before_accuracy = 100 * (scaled(1000, 1)[0].argmax(1) == scaled(1000, 1)[1]).mean()
    assert f"{place}: accuracy {before_accuracy:.2f} -> " in printed
    record = read_results(place / "results.json")
    expected = fit_temperature(*scaled(200, 2))
    assert record["metrics"]["temperature"] == pytest.approx(expected.value)
    assert record["metrics"]["temperature_error"] == pytest.approx(expected.error)
    assert record["sizes"]["labels"] == 200
    assert record["notes"][0] == "a note"
    assert "from 200 labels" in record["notes"][1]
    logits, labels = scaled(1000, 1)
    calibrated = read_predictions(place / "predictions.npz")
    np.testing.assert_allclose(calibrated.logits, logits / expected.value, rtol=1e-5)
    assert np.array_equal(calibrated.labels, labels)
    frame = results.load(output.root)
    rows = frame.set_index("calibrator")
    assert sorted(frame["calibrator"]) == ["", "", "temperature"]
    test = frame[(frame["split"] == "test")]
    assert test["pair"].nunique() == 1
    assert test["group"].nunique() == 2
    accuracy = (logits.argmax(1) == labels).mean()
    assert rows.loc["temperature", "accuracy"] == pytest.approx(accuracy)
    assert rows.loc["temperature", "ece"] < 0.05
    images = results.read_outcomes(place / "outcomes.npz").images
    assert np.array_equal(images, results.read_outcomes(run / "outcomes.npz").images)
    assert (run / "results.json").read_bytes() == before


def test_the_same_again_is_fine_and_another_run_is_not_replaced(output):
    run, place = str(output.folder("plain")), output.root / "mine"
    for _ in range(2):
        assert main(["temperature", run, "--to", str(place)]) == 0
    with pytest.raises(UserError, match=r"CALIBRATOR.NAME is 'temperature', not 'vector'.*--redo"):
        main(["vector", run, "--to", str(place)])
    assert main(["vector", run, "--to", str(place), "--redo"]) == 0
    expected = fit_vector(*scaled(200, 2))(scaled(1000, 1)[0])
    found = read_predictions(place / "predictions.npz").logits
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(UserError, match="is the run itself"):
        main(["vector", run, "--to", run])


def test_sources_of_labels_are_told_apart(output):
    run = output.folder("plain")
    for fold, seed in (("1/2", 3), ("2/2", 4)):
        name = f"plain_fold{fold[0]}"
        output.add(name, scaled(100, seed), DATASET__FOLD=fold, TEST__SPLIT="val")
    for labels in ("val", "map", "crossfit", "fixed:1.16"):
        assert main(["temperature", str(run), "--labels", labels]) == 0
    frame = results.load(output.root).set_index("calibrator")
    pooled = [np.concatenate(parts) for parts in zip(scaled(100, 3), scaled(100, 4), strict=True)]
    expected = {
        "temperature": fit_temperature(*scaled(200, 2)),
        "temperature-map": fit_temperature(*scaled(200, 2), prior=0.2),
        "temperature-crossfit": fit_temperature(*pooled),
    }
    for name, temperature in expected.items():
        assert frame.loc[name, "temperature"] == pytest.approx(temperature.value)
    assert frame.loc["temperature-fixed1.16", "temperature"] == 1.16
    assert frame.loc["temperature-fixed1.16", "sizes.labels"] == 0


def test_labels_of_new_classes_and_shifts_come_from_the_training(output):
    output.add("plain_new", scaled(500, 5), "plain", DATASET__SUBSAMPLE_CLASSES="new", names="new")
    assert main(["temperature", str(output.folder("plain_new"))]) == 0
    record = read_results(output.folder("plain_new_temperature") / "results.json")
    expected = fit_temperature(*scaled(200, 2)).value
    assert record["metrics"]["temperature"] == pytest.approx(expected)
    with pytest.raises(UserError, match="has other classes than those it would be fitted on"):
        main(["vector", str(output.folder("plain_new"))])


def test_sals_and_dac_take_no_labels(output):
    zero_shot = scaled(500, 6, 1.0)[0], scaled(500, 5)[1]
    base = {"DATASET__SUBSAMPLE_CLASSES": "base"}
    new = {"DATASET__SUBSAMPLE_CLASSES": "new"}
    clip = {"TRAINER__NAME": "ZeroshotCLIP"}
    output.add("base", scaled(400, 7), text=TEXT[2], **base)
    output.add("new", scaled(500, 5), "base", text=TEXT[0], **new)
    output.add("zero_base", scaled(400, 8), text=TEXT[3], **base, **clip)
    output.add("zero_new", zero_shot, text=TEXT[1], **new, **clip)
    assert main(["sals", str(output.folder("new"))]) == 0
    found = read_predictions(output.folder("new_sals") / "predictions.npz").logits
    expected = scale_to_zero_shot(scaled(500, 5)[0], zero_shot[0])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert main(["dac", str(output.folder("new"))]) == 0
    factors = class_factors(*TEXT.astype(np.float32))
    found = read_predictions(output.folder("new_dac") / "predictions.npz").logits
    logits = scaled(500, 5)[0]
    np.testing.assert_allclose(found, logits * factors[logits.argmax(1)][:, None], rtol=1e-4)
    for name in ("new_sals", "new_dac"):
        assert read_results(output.folder(name) / "results.json")["sizes"]["labels"] == 0
    with pytest.raises(UserError, match="DAC is for new classes"):
        main(["dac", str(output.folder("plain"))])
    with pytest.raises(UserError, match="other images"):
        main(["sals", str(output.folder("plain")), "--zero-shot", str(output.folder("zero_new"))])
    with pytest.raises(UserError, match="needs a test of ZeroshotCLIP on the same images"):
        main(["sals", str(output.folder("plain"))])


def test_labels_that_must_not_be_used_are_refused_with_the_reason(output):
    run = str(output.folder("plain"))
    with pytest.raises(UserError, match=r"best temperature there runs to 0 .* use val"):
        main(["temperature", run, "--labels", "train"])
    trained_on = output.add("shots", scaled(80, 3), "plain", TEST__SPLIT="train")
    with pytest.raises(UserError, match="runs to 0"):
        main(["temperature", run, "--fit", str(trained_on)])
    tested = output.add("tested", scaled(80, 3), "plain")
    with pytest.raises(UserError, match="its labels are for testing"):
        main(["temperature", run, "--fit", str(tested)])
    with pytest.raises(UserError, match="these are the images"):
        main(["temperature", str(output.folder("plain_val"))])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["temperature", "--labels", "fixed:hot"], "a number above 0, such as fixed:1.16, got hot"),
        (["temperature", "--labels", "fixed:0"], "a number above 0"),
        (["vector", "--labels", "fixed:2"], "vector takes none"),
        (["vector", "--labels", "map"], "vector has none"),
        (
            ["temperature", "--labels", "tests"],
            "must be val, map, crossfit or fixed:T, got 'tests'",
        ),
        (["temperature", "--labels", "crossfit"], r"DATASET.FOLD 1/4 .* found none"),
        (["temperature", "--output", "."], "no test of its model on the validation part"),
    ],
)
def test_wrong_words_are_answered(output, words, message, monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UserError, match=message):
        main([words[0], str(output.folder("plain")), *words[1:]])


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"results\.json: cannot be read"):
        main(["temperature", str(tmp_path)])
