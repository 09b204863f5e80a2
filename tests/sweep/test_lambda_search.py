"""coop_cmp/cli/lambda_search.py: lambda is chosen on validation images."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import coop_cmp.datasets  # noqa: F401 - registers them
from coop_cmp.cli import lambda_search
from coop_cmp.cli.lambda_search import Candidate, choose, collect, describe
from coop_cmp.errors import UserError
from coop_cmp.runs.run import Run
from tests.made_runs import finish_with
from tests.sweep.fake import arguments, calls, main, project_of


def select(words: list[str]) -> int:
    return main(words, "lambda")


def candidates(*rows: tuple[float | None, list[float], list[float]]) -> list[Candidate]:
    return [
        Candidate(lam, "ratio", *([{"ece": e, "accuracy": 0.5} for e in part] for part in parts))
        for lam, *parts in rows
    ]


def test_lambda_is_chosen_on_the_validation_part_and_of_equals_the_weakest(monkeypatch):
    monkeypatch.setattr(lambda_search, "_differences", lambda *_: "")
    rows = candidates(
        (None, [0.3, 0.3], [0.1, 0.1]),
        (0.1, [0.2, 0.1], [0.4, 0.4]),
        (0.01, [0.1, 0.2], [0.3, 0.3]),
    )
    assert choose(rows, "validation", "ece").lam == 0.01
    assert choose(rows, "test", "ece").lam is None
    method = Run("digits", "CoOp", "GlyphCLIP", 8)
    text = describe(method, rows, "ece")
    assert "CoOp on digits, 8 shots: 0.01; the test set would have chosen no penalty" in text
    assert "(test ECE 20.00 lower)" in text
    assert re.search(r"\| 0.01 .* chosen", text)
    assert re.search(r"\| no penalty .* best on test", text)


@pytest.mark.parametrize(("rate", "sure"), [(0.51, False), (0.89, True)])
def test_a_choice_is_compared_with_no_penalty_on_both_parts(root, rate, sure):
    project = project_of(root)
    runs = []
    rank = np.random.default_rng(0).permutation(200) / 200
    for seed in (1, 2, 3):
        for trainer, lam, share in (("CoOp", None, 0.5), ("CoOp_CMP", 0.1, rate)):
            form = None if lam is None else "ratio"
            run = Run("digits", trainer, "GlyphCLIP", 8, seed, lam, form)
            runs.append(run)
            for part in ("test", "val"):
                one = replace(run, split=part)
                names = [f"{part} {i}" for i in range(200)]
                finish_with(project, one, np.full(200, 0.9), rank < share, names, ece=0.9 - share)
    ((method, found),) = collect(project, runs).items()
    text = describe(method, found, "ece")
    assert "CoOp on digits, 8 shots: 0.1" in text
    change = rf"-{100 * (rate - 0.5):.2f} \(\S+ to \S+\){re.escape(' *' if sure else '')}"
    assert re.search(rf"no penalty, in ECE: validation {change}, test {change};", text)


def test_the_line_search_trains_and_validates_every_weight_in_both_forms(root, capsys):
    words = arguments(root, "--seeds", "1", "2", "--lambdas", "0.1", "--forms", "ratio", "log")
    assert select(words) == 0
    # no penalty and two forms, two seeds, each trained and validated
    assert len(calls(root)) == 3 * 2 * 2
    assert "digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.1_log_val/seed2" in calls(root)
    shown = capsys.readouterr().out
    assert re.search(r"^\| 0\.1 +\|", shown, re.MULTILINE)
    assert re.search(r"^\| 0\.1 log +\|", shown, re.MULTILINE)
    # the fake gives the twins 5 points more ECE on both parts
    assert "no penalty, which the test set would have chosen too" in shown


@pytest.mark.parametrize("same", [True, False])
def test_lambda_is_not_chosen_where_the_validation_images_are_the_test_images(root, same):
    project = project_of(root)
    run = Run("digits", "CoOp", "GlyphCLIP", 8)
    confidence, correct = np.full(3, 0.9), np.array([True, False, True])
    finish_with(project, run, confidence, correct, ["a", "b", "c"])
    names = ["a", "b", "c"] if same else ["d", "e", "f"]
    finish_with(project, replace(run, split="val"), confidence, correct, names)
    if same:
        with pytest.raises(UserError, match="digits: its validation part is the test set"):
            collect(project, [run])
    else:
        assert len(collect(project, [run])) == 1


@pytest.mark.parametrize("name", ["ImageNet", "ImageNetV2", "DigitsBlur", "GlyphsNoise"])
def test_the_line_search_refuses_a_data_set_without_validation_part_before_anything_runs(
    root, name
):
    file = root / "configs/datasets/my_images.yaml"
    file.write_text(f"DATASET: {{NAME: {name}}}\n")
    with pytest.raises(UserError, match="my_images: its validation part is the test set"):
        select(arguments(root, datasets=("digits", "my_images")))
    assert calls(root) == []
