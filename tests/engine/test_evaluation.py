"""Evaluators and accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dassl.evaluation import Classification, build_evaluator
from dassl.metrics import compute_accuracy
from sklearn.metrics import confusion_matrix, f1_score


def outputs(seed: int, n: int = 60, classes: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    # Labels without class 4 and rarely class 0: the classes present differ on both sides.
    labels = rng.choice(4, n, p=[0.05, 0.3, 0.3, 0.35])
    return torch.from_numpy(rng.normal(size=(n, classes))), torch.from_numpy(labels)


@pytest.mark.parametrize("seed", range(5))
def test_results_agree_with_scikit_learn(make_cfg, seed, tmp_path):
    scores, labels = outputs(seed)
    evaluator = build_evaluator(make_cfg("TEST.COMPUTE_CMAT", True))
    for part in range(0, 60, 25):
        evaluator.process(scores[part : part + 25], labels[part : part + 25])
    results = evaluator.evaluate()
    pred = scores.argmax(1)
    assert list(results) == ["accuracy", "error_rate", "macro_f1"]
    accuracy = 100 * (pred == labels).double().mean().item()
    assert results["accuracy"] == pytest.approx(accuracy)
    assert results["error_rate"] == pytest.approx(100 - accuracy)
    expected = 100 * f1_score(labels, pred, average="macro", labels=np.unique(labels))
    assert results["macro_f1"] == pytest.approx(expected)
    matrix = torch.load(tmp_path / "out" / "cmat.pt", weights_only=True)
    assert np.allclose(matrix, confusion_matrix(labels, pred, normalize="true"))


def test_the_printed_lines_are_the_ones_that_log_parsers_read(make_cfg, capsys):
    evaluator = Classification(
        make_cfg("TEST.PER_CLASS_RESULT", True), lab2cname={0: "cat", 1: "dog"}
    )
    scores = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    evaluator.process(scores, torch.tensor([0, 0, 1]))
    results = evaluator.evaluate()
    assert capsys.readouterr().out == (
        "=> result\n* total: 3\n* correct: 2\n* accuracy: 66.7%\n* error: 33.3%\n"
        "* macro_f1: 66.7%\n=> per-class result\n"
        "* class: 0 (cat)\ttotal: 2\tcorrect: 1\tacc: 50.0%\n"
        "* class: 1 (dog)\ttotal: 1\tcorrect: 1\tacc: 100.0%\n"
        "* average: 75.0%\n"
    )
    assert results["perclass_accuracy"] == 75
    evaluator.reset()
    with pytest.raises(ValueError, match="no samples"):
        evaluator.evaluate()


def test_missing_class_names_unknown_evaluators_and_empty_splits_are_named(make_cfg):
    with pytest.raises(ValueError, match="lab2cname"):
        Classification(make_cfg("TEST.PER_CLASS_RESULT", True))
    with pytest.raises(ValueError, match=r"do you mean \[Classification\]"):
        build_evaluator(make_cfg("TEST.EVALUATOR", "Clasification"))


def test_top_k_accuracy_agrees_with_sorting_by_hand():
    scores, labels = outputs(9)
    ranks = [
        sorted(range(5), key=lambda j: -row[j]).index(int(y))
        for row, y in zip(scores.tolist(), labels, strict=True)
    ]
    found = compute_accuracy(scores, labels, topk=(1, 2, 5))
    expected = [100 * np.mean([rank < k for rank in ranks]) for k in (1, 2, 5)]
    assert [tensor.shape for tensor in found] == [(1,)] * 3
    assert [tensor.item() for tensor in found] == pytest.approx(expected)
    assert compute_accuracy((scores, None), labels)[0].item() == pytest.approx(expected[0])
