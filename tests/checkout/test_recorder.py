"""Results stored beside evaluators of a checkout's own."""

from __future__ import annotations

import json
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dassl.config import get_cfg_default
from dassl.evaluation import Classification, EvaluatorBase

from coop_cmp import add_term_config
from coop_cmp.checkout.recorder import record
from coop_cmp.errors import UserError
from coop_cmp.metrics import calibration_report
from coop_cmp.runs import read_predictions
from coop_cmp.runs.evaluator import CalibrationEvaluator

LOGITS = 3 * torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(20) % 4


class OwnEvaluator(EvaluatorBase):
    """Takes features too, and is evaluated on probabilities, as CLIP_Calibration's."""

    def reset(self):
        self._y_score, self.features = [], []

    def process(self, mo, gt, image_features, text_features):
        self._y_score += mo.tolist() if isinstance(mo, torch.Tensor) else []
        self.features.append(image_features)

    def evaluate(self, probs, labels, proximity):
        print("own result")
        return OrderedDict(accuracy=float((probs.argmax(1) == labels).mean()))


def run(tmp_path, kind, test, split=None, lam=0.5):
    """Test a trainer whose evaluator is of the kind; its results.json, if there is one."""
    cfg = get_cfg_default()
    add_term_config(cfg, "CMP")
    cfg.OUTPUT_DIR, cfg.TRAINER.NAME, cfg.TRAINER.CMP.LAMBDA = str(tmp_path), "Plain", lam
    cfg.DATASET.NAME = "Made-up"
    names = {i: f"class {i}" for i in range(4)}
    evaluator = kind(cfg) if kind is OwnEvaluator else kind(cfg, lab2cname=names)
    trainer = SimpleNamespace(cfg=cfg, evaluator=evaluator, lab2cname=names, train=lambda: None)
    trainer.test = lambda split=None: test(evaluator)
    record(trainer, "Plain_CMP")
    trainer.test(split)
    assert cfg.TRAINER.NAME == "Plain"
    file = tmp_path / "results.json"
    return json.loads(file.read_text()) if file.exists() else None


def plain_test(evaluator):
    evaluator.reset()
    for part in (slice(0, 8), slice(8, 20)):
        evaluator.process(LOGITS[part], LABELS[part])
    return evaluator.evaluate()


def calibrating_test(temperature):
    def test(evaluator):
        evaluator.reset()
        for part in (slice(0, 8), slice(8, 20)):
            evaluator.process(LOGITS[part], LABELS[part], torch.ones(1), torch.ones(1))
        logits = np.array(evaluator._y_score)
        probabilities = (torch.tensor(logits) / temperature).softmax(1).numpy()
        return evaluator.evaluate(probabilities, LABELS.numpy(), None)

    return test


def expected_ece(logits=LOGITS) -> float:
    return calibration_report(logits, LABELS, 10, "right", from_logits=True)["ece"]


@pytest.mark.parametrize("kind", [Classification, CalibrationEvaluator])
def test_results_carry_the_twins_name_and_the_same_numbers_beside_any_evaluator(
    tmp_path, kind, capsys
):
    record = run(tmp_path, kind, plain_test)
    settings = record["settings"]
    assert (settings["TRAINER.NAME"], settings["TRAINER.CMP.LAMBDA"]) == ("Plain_CMP", 0.5)
    assert record["metrics"]["ece"] == pytest.approx(expected_ece())
    stored = read_predictions(tmp_path / "predictions.npz")
    assert np.array_equal(stored.logits, LOGITS.numpy())
    printed = capsys.readouterr().out
    assert printed.count("=> result") == 1
    assert f"coop_cmp: ece {100 * expected_ece():.1f}" in printed


def test_results_are_those_of_the_probabilities_that_a_checkout_has_calibrated(tmp_path):
    record = run(tmp_path, OwnEvaluator, calibrating_test(temperature=3.0))
    assert record["metrics"]["ece"] == pytest.approx(expected_ece(LOGITS / 3), rel=1e-5)
    assert record["metrics"]["ece"] != pytest.approx(expected_ece(), rel=1e-2)


@pytest.mark.parametrize("kind", [Classification, CalibrationEvaluator])
def test_a_validation_is_not_stored_as_the_test(tmp_path, kind):
    assert run(tmp_path, kind, plain_test, split="val") is None


def test_a_line_says_why_nothing_is_stored(tmp_path, capsys):
    def pairs(evaluator):
        evaluator.reset()
        evaluator.process([LOGITS, LOGITS], LABELS, None, None)
        evaluator.evaluate(LOGITS.softmax(1).numpy(), LABELS.numpy(), None)

    assert run(tmp_path, OwnEvaluator, pairs) is None
    assert "OwnEvaluator is given a list and a tensor [20]" in capsys.readouterr().out
    assert run(tmp_path, OwnEvaluator, lambda evaluator: None) is None
    assert "its test does not use the evaluator" in capsys.readouterr().out
    record(SimpleNamespace(evaluator=None), "Odd")
    assert "Odd has no evaluator of Dassl's kind" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [Classification, CalibrationEvaluator])
def test_results_of_other_settings_are_not_replaced(tmp_path, kind):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.pth.tar-1").touch()  # of the checkout's own training, allowed
    first = run(tmp_path, kind, plain_test)
    assert run(tmp_path, kind, plain_test)["digest"] == first["digest"]
    with pytest.raises(UserError, match=r"TRAINER.CMP.LAMBDA is 0.5, not 0.1.*--output-dir"):
        run(tmp_path, kind, pytest.fail, lam=0.1)
    assert json.loads((tmp_path / "results.json").read_text())["digest"] == first["digest"]
    (tmp_path / "run.json").unlink()
    with pytest.raises(UserError, match=r"results.json of a run of unknown settings"):
        run(tmp_path, kind, pytest.fail)
