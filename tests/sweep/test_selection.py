"""coop_cmp/sweep/selection.py: lambda is chosen on validation images."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from dassl.data.datasets import DATASET_REGISTRY

import datasets  # noqa: F401 - registers them
from coop_cmp.errors import UserError
from coop_cmp.results import write_predictions
from coop_cmp.sweep.__main__ import main
from coop_cmp.sweep.grid import Run
from coop_cmp.sweep.project import Project
from coop_cmp.sweep.selection import NO_VALIDATION, Candidate, choose, collect, describe
from coop_cmp.sweep.selection import main as select
from datasets.base import FewShotDataset
from tests.sweep.conftest import arguments, calls


def candidates(*rows: tuple[float | None, list[float], list[float]]) -> list[Candidate]:
    return [Candidate(lam, tuple(val), tuple(test), (0.5,) * len(val)) for lam, val, test in rows]


def test_lambda_is_chosen_on_the_validation_part_and_of_equals_the_weakest():
    rows = candidates(
        (None, [0.3, 0.3], [0.1, 0.1]),
        (0.1, [0.2, 0.1], [0.4, 0.4]),
        (0.01, [0.1, 0.2], [0.3, 0.3]),
    )
    assert choose(rows, "validation").lam == 0.01
    assert choose(rows, "test").lam is None
    method = Run("digits", "CoOp", "GlyphCLIP", 8)
    text = describe(method, rows, "ece")
    assert "CoOp on digits, 8 shots: 0.01; the test set would have chosen no penalty" in text
    assert "(test ECE 20.00 lower)" in text
    assert re.search(r"\| 0.01 .* chosen", text)
    assert re.search(r"\| no penalty .* best on test", text)


def test_the_line_search_trains_and_validates_every_weight_of_every_method(root, capsys):
    words = arguments(root, "--seeds", "1", "2", "--lambdas", "0.1", "0.5")
    assert select(words) == 0
    # no penalty and two weights, two seeds, each trained and validated
    assert len(calls(root)) == 3 * 2 * 2
    assert "digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.5_val/seed2" in calls(root)
    # the fake gives the twins 5 points more ECE on both parts
    assert "no penalty, which the test set would have chosen too" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "same"), [([1, 0, 2], True), ([1, 0, 1], False), ([1, 0], False)]
)
def test_lambda_is_not_chosen_where_the_validation_images_are_the_test_images(root, labels, same):
    project = Project(root, root / "output")
    run = Run("digits", "CoOp", "GlyphCLIP", 8)
    assert main(arguments(root, "--seeds", "1")) == 0
    results = json.loads((project.directory(run) / "results.json").read_text())
    # Figures of the same images differ in the last digits from run to run on a GPU.
    metrics = {name: value + 1e-7 for name, value in results["metrics"].items()}
    for part, figures, those in (("test", results["metrics"], [1, 0, 2]), ("val", metrics, labels)):
        record = {**results, "split": part, "metrics": figures, "sizes": {"test": len(those)}}
        folder = project.directory(replace(run, split=part))  # type: ignore[arg-type]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps(record))
        write_predictions(folder / "predictions.npz", np.zeros((len(those), 3)), those, list("abc"))
    if same:
        with pytest.raises(UserError, match="digits: its validation part is the test set"):
            collect(project, [run], "ece")
    else:
        assert len(collect(project, [run], "ece")) == 1


def test_the_line_search_refuses_a_data_set_without_validation_part_before_anything_runs(root):
    file = root / "configs/datasets/my_images.yaml"
    file.write_text("DATASET: {NAME: ImageNet}\n")
    with pytest.raises(UserError, match="my_images: its validation part is the test set"):
        select([*arguments(root), "--datasets", "digits", "my_images"])
    assert calls(root) == []


def test_the_line_search_knows_which_data_sets_have_no_validation_part():
    for name in DATASET_REGISTRY.registered_names():
        kind = DATASET_REGISTRY.get(name)
        if issubclass(kind, FewShotDataset) and kind.sizes is not None:
            has_none = kind.sizes.val == 0 or not kind.sample_val
            assert name.startswith(NO_VALIDATION) == has_none, name
