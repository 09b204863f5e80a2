"""The evaluator: Dassl's lines and ours, over the whole test set, and the files it leaves."""

import re

import numpy as np
import pytest
import torch
from dassl.config import get_cfg_default
from dassl.evaluation import build_evaluator
from sklearn.metrics import log_loss

import coop_cmp.runs.evaluator  # noqa: F401
from coop_cmp.checkout.twins import add_term_config
from coop_cmp.errors import UserError
from coop_cmp.metrics import calibration_report
from coop_cmp.metrics.records import METRICS
from coop_cmp.runs import read_outcomes, read_predictions, read_results
from coop_cmp.runs.outputs import image_numbers

NAMES = {0: "zero", 1: "one", 2: "two", 3: "three"}


def configured(folder="", trainer="CoOp", **test):
    """The config of a foreign checkout: Dassl's defaults and nothing of ours but the evaluator."""
    cfg = get_cfg_default()
    cfg.VERBOSE, cfg.SEED, cfg.OUTPUT_DIR = False, 3, str(folder)
    cfg.TRAINER.NAME, cfg.DATASET.NAME, cfg.MODEL.BACKBONE.NAME = trainer, "Digits", "RN50"
    cfg.DATASET.NUM_SHOTS = 8
    cfg.TEST.EVALUATOR = "CalibrationEvaluator"
    for name, value in test.items():
        cfg.TEST[name] = value
    return cfg


def outputs(n=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 4, generator=generator) * 3
    labels = (logits * 0.6).softmax(1).multinomial(1, generator=generator)[:, 0]
    return logits, labels


def evaluated(cfg, logits, labels, batch=32, **attributes):
    evaluator = build_evaluator(cfg, lab2cname=NAMES)
    for name, value in attributes.items():
        setattr(evaluator, name, value)
    evaluator.reset()
    for i in range(0, len(labels), batch):
        evaluator.process(logits[i : i + batch], labels[i : i + batch])
    return evaluator.evaluate()


@pytest.mark.parametrize("batch", [1, 50])
def test_results_are_percent_stored_ones_fractions_whatever_the_batches(tmp_path, batch):
    logits, labels = outputs()
    results = evaluated(configured(tmp_path), logits, labels, batch)
    report = calibration_report(logits, labels, from_logits=True)
    assert next(iter(results)) == "accuracy"
    assert {"error_rate", "macro_f1"} <= set(results)
    for key in ("accuracy", "ece", "ace", "mce", "weighted_mce"):
        assert results[key] == pytest.approx(100 * report[key]), key
    assert results["nll"] == pytest.approx(log_loss(labels, logits.double().softmax(1)), abs=1e-9)
    stored = read_results(tmp_path / "results.json")["metrics"]
    assert stored == pytest.approx(report, abs=1e-12)
    assert set(stored) == {name for name, metric in METRICS.items() if not metric.on_request}


def test_the_log_can_be_parsed_as_coop_does_and_names_its_convention(tmp_path, capsys):
    results = evaluated(configured(tmp_path), *outputs())
    out = capsys.readouterr().out
    for key in ("accuracy", "ece", "ace", "mce", "weighted_mce"):
        (found,) = re.findall(rf"\* {key}: ([\.\deE+-]+)%", out)
        assert float(found) == pytest.approx(results[key], abs=0.06 if key == "accuracy" else 0.006)
    assert f"* nll: {results['nll']:.4f}\n" in out
    assert "10 equal-width bins (lo, hi]" in out
    assert out.index("=> result") < out.index("* accuracy") < out.index("* ece")


def test_a_baseline_leaves_its_record_and_its_predictions(tmp_path):
    logits, labels = outputs()
    names = [f"{i}.jpg" for i in range(120)]
    facts = {
        "weights": {"name": "file.pt", "digest": "0"},
        "checkpoint": "1",
        "images": names,
        "sizes": {"train": 32},
        "notes": ["new split"],
    }
    evaluated(configured(tmp_path), logits.half(), labels, facts=facts)
    record = read_results(tmp_path / "results.json")
    expected = {
        "training": None,
        "weights": {"name": "file.pt", "digest": "0"},
        "checkpoint": "1",
        "sizes": {"classes": 4, "test": 120, "train": 32},
        "notes": ["new split"],
    }
    assert {key: record[key] for key in expected} == expected
    settings = record["settings"]
    assert (settings["TRAINER.NAME"], settings["DATASET.NAME"]) == ("CoOp", "Digits")
    assert (settings["DATASET.NUM_SHOTS"], settings["SEED"]) == (8, 3)
    assert "OUTPUT_DIR" not in settings, "it cannot change a number"
    outcomes = read_outcomes(tmp_path / "outcomes.npz")
    assert np.array_equal(outcomes.images, image_numbers(names))
    probs = logits.half().double().softmax(1)
    assert np.allclose(outcomes.confidence, probs.max(1).values, atol=1e-12)
    assert np.array_equal(outcomes.predicted, probs.argmax(1))
    true = probs[torch.arange(120), labels]
    assert np.allclose(outcomes.nll, -true.log(), atol=1e-12)
    assert {"host", "device_name", "threads", "memory_mb"} <= set(record["machine"])
    assert 0 <= record["seconds"]["test"] <= record["seconds"]["total"]
    assert {"coop_cmp", "python", "torch", "dassl"} <= set(record["versions"])
    predictions = read_predictions(tmp_path / "predictions.npz")
    assert np.array_equal(predictions.logits, logits.half().float().numpy())
    assert np.array_equal(predictions.labels, labels.numpy())
    assert predictions.classnames == list(NAMES.values())


def test_a_twin_stores_its_penalty(tmp_path):
    cfg = configured(tmp_path, trainer="CoOp_CMP")
    add_term_config(cfg, "CMP")
    cfg.TRAINER.CMP.LAMBDA, cfg.TRAINER.CMP.FORM = 0.05, "log"
    cfg.MODEL.BACKBONE.WEIGHTS = "laion400m"
    evaluated(cfg, *outputs())
    record = read_results(tmp_path / "results.json")
    settings = record["settings"]
    assert (settings["TRAINER.CMP.LAMBDA"], settings["TRAINER.CMP.FORM"]) == (0.05, "log")
    assert record["weights"] == {"name": "laion400m"}


def test_only_the_test_split_leaves_files(tmp_path):
    evaluated(configured(tmp_path), *outputs(), split="val")
    assert list(tmp_path.iterdir()) == []
    evaluated(configured(), *outputs())
    assert list(tmp_path.iterdir()) == []
    evaluated(configured(tmp_path, SPLIT="val"), *outputs(), split="val")
    assert read_results(tmp_path / "results.json")["settings"]["TEST.SPLIT"] == "val"


def test_a_perfect_model_is_stored_without_an_auroc(tmp_path):
    labels = torch.arange(40) % 4
    evaluated(configured(tmp_path), torch.eye(4)[labels] * 30, labels)
    record = read_results(tmp_path / "results.json")
    assert record["metrics"]["accuracy"] == 1.0
    assert record["metrics"]["auroc"] is None


def test_a_second_test_forgets_the_first_and_class_names_are_optional(tmp_path):
    evaluator = build_evaluator(configured(tmp_path))
    for n in (50, 30):
        evaluator.reset()
        evaluator.process(*outputs(n))
        evaluator.evaluate()
        assert read_results(tmp_path / "results.json")["sizes"]["test"] == n
    assert read_predictions(tmp_path / "predictions.npz").classnames == ["0", "1", "2", "3"]


def test_bins_come_from_the_config_and_a_wrong_number_fails_before_training(tmp_path, capsys):
    cfg = configured(tmp_path, N_BINS=15, BIN_CLOSED="left")
    logits, labels = outputs()
    results = evaluated(cfg, logits, labels)
    report = calibration_report(logits, labels, 15, "left", from_logits=True)
    assert results["ece"] == pytest.approx(100 * report["ece"])
    assert "15 equal-width bins [lo, hi)" in capsys.readouterr().out
    with pytest.raises(UserError, match="n_bins"):
        build_evaluator(configured(N_BINS=0), lab2cname=NAMES)


def test_diverged_logits_are_an_error_and_leave_no_result(tmp_path):
    logits, labels = outputs()
    logits[7, 2] = float("nan")
    with pytest.raises(UserError, match="row 7"):
        evaluated(configured(tmp_path), logits, labels)
    assert list(tmp_path.iterdir()) == []
