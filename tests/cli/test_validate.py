"""The check of a set-up, with made-up weights, data and expectations."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from coop_cmp.cli.validate import Line, accuracy_line
from coop_cmp.errors import UserError
from coop_cmp.runs import read_predictions, read_results
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.trainers.checkpoint import learned_digest
from tests.commands import command
from tests.conftest import ROOT
from tests.made_runs import finish

main = command("validate")

EXPECTED = {
    "zero_shot": {
        "tolerance": 0.5,
        "sure": "recalled",
        "RN50": {"dtd": 42.3, "eurosat": 37.5, "ucf101": 61.0},
    },
    "coop_16_shots": {"tolerance": 1.5, "sure": "read", "RN50": {"eurosat": 80.0}},
}
PUBLISHED = "afeb0e10f9e5a86da6080e35cf09123aca3b358a0c3e3b6c78a7b63bc04b6762"  # RN50's


@pytest.fixture
def validate(tmp_path: Path, monkeypatch, capsys):
    """Call the command on two data sets whose runs are done: its code and what it printed."""
    for folder in ("dtd", "eurosat"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    (tmp_path / "expected.yaml").write_text(yaml.safe_dump(EXPECTED))
    project = Project(tmp_path / "out", str(tmp_path / "data"))
    finish(project, Run("dtd", "ZeroshotCLIP", "RN50"), accuracy=0.426)
    finish(project, Run("eurosat", "ZeroshotCLIP", "RN50"), accuracy=0.30)
    finish(project, Run("dtd", "CoOp", "RN50", shots=16), accuracy=0.6)

    def call(*options: str, digest: str = PUBLISHED) -> tuple[int, str]:
        loaded = SimpleNamespace(digest=digest)
        monkeypatch.setattr("coop_cmp.clip.load_clip", lambda *arguments: loaded)
        places = ["--output", str(project.output), "--data", project.data]
        expected = ["--expected", str(tmp_path / "expected.yaml"), "--backbone", "RN50"]
        return main([*places, *expected, *options]), capsys.readouterr().out

    return call


def test_each_line_says_expected_got_and_what_usually_causes_a_difference(validate):
    code, out = validate("--train")
    lines = [line for line in out.splitlines() if line[:2] in ("ok", "DI", "- ")]
    assert lines == [
        "ok      weights of RN50: expected afeb0e10f9e5, got afeb0e10f9e5",
        "ok      zero shot on dtd: expected 42.30 ± 0.5 (recalled), got 42.60",
        "DIFFERS zero shot on eurosat: expected 37.50 ± 0.5 (recalled), got 30.00",
        "-       coop 16 shots on dtd: got 60.00, no published number here",
    ]
    assert "usual causes: another prompt (DATASET.TEMPLATE)" in out
    assert "ucf101" not in out
    assert "4 compared, 1 differ" in out
    assert code == 1


def test_a_checkpoint_of_coop_is_tested(validate, tmp_path, monkeypatch, capsys):
    # The embedded model in the place of OpenAI's.
    fits = Line("weights of GlyphCLIP", "weights", "", True)
    monkeypatch.setattr("coop_cmp.cli.validate.weights_line", lambda *_: fits)
    published = tmp_path / "published" / "prompt_learner"
    published.mkdir(parents=True)
    torch.manual_seed(0)
    learned = {"ctx": 0.02 * torch.randn(16, 96), "token_prefix": torch.zeros(10, 1, 96)}
    torch.save({"state_dict": learned, "epoch": 50}, published / "model.pth.tar-50")
    arguments = ("--backbone", "GlyphCLIP", "--checkpoint-dataset", "digits", "--checkpoint")
    code, out = validate(*arguments, str(published.parent))
    (stored,) = (tmp_path / "out/validation").rglob("predictions.npz")
    found = read_predictions(stored)
    accuracy = 100 * (found.logits.argmax(1) == found.labels).mean()
    assert f"coop 16 shots on digits: got {accuracy:.2f}, no published number here" in out
    assert code == 0
    record = read_results(stored.with_name("results.json"))
    assert record["checkpoint"] == learned_digest(torch.nn.ParameterDict({"ctx": learned["ctx"]}))
    with pytest.raises(UserError, match='no model at "nowhere'):
        validate(*arguments, "nowhere")


def test_other_weights_are_noticed(validate):
    code, out = validate(digest="0" * 64)
    assert code == 1
    assert "DIFFERS weights of RN50: expected afeb0e10f9e5, got 000000000000" in out
    assert "fetch the file again" in out


def test_a_number_at_the_edge_of_the_tolerance_fits():
    run = Run("dtd", "ZeroshotCLIP", "RN50")
    assert accuracy_line(run, "zero_shot", 42.8, EXPECTED).fits
    assert not accuracy_line(run, "zero_shot", 42.81, EXPECTED).fits


def test_wrong_expectations_and_backbones_are_refused(validate, tmp_path):
    with pytest.raises(UserError, match="--backbone must be one of RN50"):
        validate("--backbone", "GlyphCLIP")
    (tmp_path / "expected.yaml").write_text("zero_shot: {}\n")
    with pytest.raises(UserError, match="expected zero_shot with tolerance"):
        validate()


def test_the_projects_expectations_name_data_sets_that_there_are():
    content = yaml.safe_load((ROOT / "configs/validation.yaml").read_text())
    known = {file.stem for file in (ROOT / "configs/datasets").glob("*.yaml")}
    for node in content.values():
        assert node["sure"] in ("read", "recalled")
        for backbone in ("RN50", "ViT-B/16"):
            assert set(node[backbone]) <= known
            assert all(0 < value < 100 for value in node[backbone].values())
