"""``coop-cmp train``: CoOp's command line from end to end, and every wrong one."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from coop_cmp import cli
from coop_cmp.cli import training
from tests.conftest import ROOT

DIGITS = ("--dataset-config-file", str(ROOT / "configs/datasets/digits.yaml"))
COOP = ("--config-file", str(ROOT / "tests/tiny.yaml"))
SHORT = ("MODEL.BACKBONE.NAME", "TinyCLIP", "OPTIM.MAX_EPOCH", "3", "DATASET.NUM_SHOTS", "2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def call(tiny_weights, data, monkeypatch, capsys):
    """Run train.py in this process: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", sys.stdout)  # the logger replaces it
            code = cli.main(["train", "--root", str(data), "--seed", "1", *arguments])
        return code, *capsys.readouterr()

    return run


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_a_run_leaves_its_log_checkpoint_results_and_predictions(call, tmp_path):
    out = tmp_path / "out"
    code, stdout, _ = call(
        "--trainer", "CoOp_CMP", *DIGITS, *COOP, "--output-dir", str(out), *SHORT,
        "TRAINER.CMP.LAMBDA", "0.05",
    )  # fmt: skip
    assert code == 0
    assert "loss_cmp" in stdout
    assert "* ece:" in stdout
    assert (out / "log.txt").is_file()
    assert (out / "prompt_learner" / "model.pth.tar-3").is_file()
    record = results(out)
    settings = record["settings"]
    assert (settings["TRAINER.NAME"], settings["SEED"]) == ("CoOp_CMP", 1)
    assert settings["TRAINER.CMP.LAMBDA"] == 0.05
    assert record["sizes"] == {"classes": 10, "test": 1197, "train": 20, "trainable": 512}
    predictions = np.load(out / "predictions.npz")
    hits = predictions["logits"].argmax(1) == predictions["labels"]
    assert record["metrics"]["accuracy"] == pytest.approx(hits.mean())
    assert predictions["text_features"].shape == (10, 32)


def test_eval_only_gives_the_same_figures(call, tmp_path):
    out, again = tmp_path / "out", tmp_path / "again"
    method = ("--trainer", "CoOp", *DIGITS, *COOP)
    assert call(*method, "--output-dir", str(out), *SHORT)[0] == 0
    code, _, _ = call(
        *method, "--output-dir", str(again), "--eval-only", "--model-dir", str(out), *SHORT
    )
    assert code == 0
    assert results(again)["metrics"] == results(out)["metrics"]


def test_eval_only_without_an_output_directory_only_prints(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    method = ("--trainer", "CoOp", *DIGITS, *COOP)
    assert call(*method, "--output-dir", "out", *SHORT)[0] == 0
    before = sorted(tmp_path.rglob("*"))
    code, stdout, _ = call(*method, "--eval-only", "--model-dir", "out", *SHORT)
    assert code == 0
    assert "* ece:" in stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_the_same_seed_gives_the_same_run_and_another_seed_another(call, tmp_path):
    logits = []
    for name, seed in (("a", "0"), ("b", "0"), ("c", "2")):
        arguments = ("--trainer", "CoOp", *DIGITS, *COOP, "--output-dir", str(tmp_path / name))
        assert call(*arguments, "--seed", seed, *SHORT)[0] == 0
        logits.append(np.load(tmp_path / name / "predictions.npz")["logits"])
    assert (logits[0] == logits[1]).all()
    assert not (logits[0] == logits[2]).all()
    assert results(tmp_path / "a")["settings"]["SEED"] == 0


def test_an_interrupted_run_goes_on_to_the_same_result(call, tmp_path):
    method = ("--trainer", "CoOp_CMP", *DIGITS, *COOP)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    options = (*SHORT, "TRAIN.CHECKPOINT_FREQ", "1")
    assert call(*method, "--output-dir", str(whole), *options)[0] == 0
    shutil.copytree(whole, broken)
    (broken / "results.json").unlink()
    (broken / "prompt_learner" / "model.pth.tar-3").unlink()
    torn = broken / "prompt_learner" / "model.pth.tar-2"
    torn.write_bytes(torn.read_bytes()[:100])
    code, stdout, _ = call(*method, "--output-dir", str(broken), *options)
    assert code == 0
    assert "epoch [2/3]" in stdout
    assert "epoch [1/3]" not in stdout
    assert results(broken)["metrics"] == results(whole)["metrics"]


def test_zero_shot_runs_without_anything_to_train(call, tmp_path):
    for trainer in ("ZeroshotCLIP", "ZeroshotCLIP2"):
        out = tmp_path / trainer
        arguments = ("--trainer", trainer, *DIGITS, *COOP, "--output-dir", str(out), *SHORT)
        assert call(*arguments)[0] == 0
        assert results(out)["sizes"]["trainable"] == 0
    first, second = (results(tmp_path / t)["metrics"] for t in ("ZeroshotCLIP", "ZeroshotCLIP2"))
    assert first["nll"] != second["nll"]


def test_epochs_follow_the_number_of_shots(tiny_weights):
    def epochs(*options: str, config: str = "clip") -> int:
        file = str(ROOT / f"configs/trainers/CoOp/{config}.yaml")
        args = ["--trainer", "CoOp", *DIGITS, "--config-file", file, *options]
        return training.setup_cfg(cli.parse(["train", *args])[1]).OPTIM.MAX_EPOCH

    expected = {"1": 50, "2": 100, "4": 100, "8": 200, "16": 200, "3": 100, "32": 200, "-1": 200}
    assert {k: epochs("DATASET.NUM_SHOTS", k) for k in expected} == expected
    assert epochs("DATASET.NUM_SHOTS", "8", "DATASET.NAME", "ImageNet") == 50
    assert epochs("DATASET.NUM_SHOTS", "8", "OPTIM.MAX_EPOCH", "7") == 7


def test_more_shots_than_there_are_warn_and_use_all(call, tmp_path):
    out = tmp_path / "out"
    arguments = ("--trainer", "ZeroshotCLIP", *DIGITS, *COOP, "--output-dir", str(out), *SHORT[:4])
    code, stdout, stderr = call(*arguments, "DATASET.NUM_SHOTS", "5000")
    assert code == 0
    assert "5000" in stdout + stderr.lower()
    assert results(out)["sizes"]["train"] == 400


@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_unreadable_image_is_named(workers, call, data, tmp_path):
    place = ("--output-dir", str(tmp_path / "untrained"))
    assert call("--trainer", "CoOp", *DIGITS, *COOP, *place, "--no-train", *SHORT)[0] == 0
    own = tmp_path / "data"
    shutil.copytree(data, own)
    for image in own.glob("digits/**/*.png"):
        image.write_bytes(image.read_bytes()[:60])
    code, _, stderr = call(
        "--trainer", "CoOp", "--root", str(own), *DIGITS, *COOP,
        "--output-dir", str(tmp_path / "out"), *SHORT, "DATALOADER.NUM_WORKERS", workers,
    )  # fmt: skip
    assert code == 65
    assert re.search(r"^error: .*\.png", stderr.splitlines()[-1]), stderr
    assert not (tmp_path / "out" / "results.json").exists()


def test_a_finished_run_with_other_settings_is_left_alone(call, tmp_path):
    out = tmp_path / "out"
    method = ("--trainer", "CoOp", *DIGITS, *COOP, "--output-dir", str(out), *SHORT)
    assert call(*method)[0] == 0
    before = (out / "results.json").read_bytes()
    code, _, stderr = call(*method, "TRAINER.COOP.N_CTX", "4")
    assert code == 2
    assert "TRAINER.COOP.N_CTX" in stderr
    assert (out / "results.json").read_bytes() == before


@pytest.mark.parametrize("content", ["torn", "foreign"])
def test_a_torn_or_foreign_checkpoint_is_refused(content, call, tmp_path):
    path = tmp_path / "out" / "prompt_learner" / "model.pth.tar-3"
    path.parent.mkdir(parents=True)
    if content == "torn":
        path.write_bytes(b"PK not a checkpoint")
    else:
        torch.save({"state_dict": {"ctx": torch.zeros(4, 7)}, "epoch": 3}, path)
    code, _, stderr = call(
        "--trainer", "CoOp", *DIGITS, *COOP, "--eval-only", "--model-dir", str(tmp_path / "out"),
        "--output-dir", str(tmp_path / "eval"), *SHORT,
    )  # fmt: skip
    assert code == 2
    assert str(path) in stderr


def test_a_checkpoint_of_the_coop_codebase_loads_for_other_classes(call, tmp_path):
    path = tmp_path / "coop" / "prompt_learner" / "model.pth.tar-50"
    path.parent.mkdir(parents=True)
    state = {
        "ctx": torch.randn(16, 32).half(),
        "token_prefix": torch.zeros(100, 1, 32),
        "token_suffix": torch.zeros(100, 60, 32),
    }
    torch.save({"state_dict": state, "epoch": 50}, path)
    code, stdout, stderr = call(
        "--trainer", "CoOp", *DIGITS, *COOP, "--eval-only", "--model-dir", str(tmp_path / "coop"),
        "--load-epoch", "50", "--output-dir", str(tmp_path / "eval"), *SHORT,
    )  # fmt: skip
    assert code == 0, stderr
    assert "epoch 50" in stdout


def test_the_script_shows_no_traceback_and_exits_with_2(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--trainer", "CoOpp", *DIGITS, *COOP])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith('error: unknown trainer "CoOpp"')


def test_the_image_files_of_the_tests_are_real(data):
    # Guards the test of unreadable images: undamaged, the same files open.
    images = list(data.glob("digits/**/*.png"))
    assert len(images) > 1000
    Image.open(images[0]).load()


def test_a_directory_keeps_its_run_until_told_otherwise(call, tmp_path):
    train_in = ("--trainer", "CoOp", *DIGITS, *COOP, "--output-dir", str(tmp_path), *SHORT)
    assert call(*train_in)[0] == 0
    before = results(tmp_path)
    assert call(*train_in)[0] == 0, "the same again"
    assert results(tmp_path)["checkpoint"] == before["checkpoint"]
    other = (*train_in, "OPTIM.LR", "0.5")
    code, _, err = call(*other)
    assert code == 2
    assert "OPTIM.LR is 0.003, not 0.5" in err
    assert results(tmp_path)["digest"] == before["digest"]
    code, _, err = call("--trainer", "ZeroshotCLIP", *DIGITS, *train_in[4:])
    assert code == 2
    assert "TRAINER.NAME is 'CoOp', not 'ZeroshotCLIP'" in err
    assert call("--redo", *other)[0] == 0
    assert results(tmp_path)["settings"]["OPTIM.LR"] == 0.5
    assert results(tmp_path)["checkpoint"] != before["checkpoint"]


def test_a_test_of_another_model_does_not_replace_the_first(call, tmp_path):
    for name, rate in (("a", "0.002"), ("b", "0.5")):
        out = str(tmp_path / name)
        options = (*SHORT, "OPTIM.LR", rate)
        assert call("--trainer", "CoOp", *DIGITS, *COOP, "--output-dir", out, *options)[0] == 0
    shutil.rmtree(tmp_path / "a" / "tensorboard")
    test = ("--trainer", "CoOp", *DIGITS, *COOP, "--output-dir", str(tmp_path / "test"), *SHORT)
    first = ("--eval-only", "--model-dir", str(tmp_path / "a"))
    assert call(*first, *test)[0] == 0
    record = results(tmp_path / "test")
    assert record["training"]["digest"] == results(tmp_path / "a")["digest"]
    assert record["checkpoint"] == results(tmp_path / "a")["checkpoint"]
    for model in ("b", "copy of b"):  # a run, and a model of which nothing else is known
        code, _, err = call("--eval-only", "--model-dir", str(tmp_path / model), *test)
        assert code == 2
        assert "another" in err
        if model == "b":
            shutil.copytree(tmp_path / "b/prompt_learner", tmp_path / "copy of b/prompt_learner")
    assert results(tmp_path / "test") == record


def test_a_start_that_fails_leaves_its_directory_free_for_the_corrected_one(run, tmp_path):
    assert "INPUT.SHARED_VIEWS needs" in run(
        "out", "INPUT.SHARED_VIEWS", "True", "SEED", "-1", code=2
    )
    assert not (tmp_path / "out/run.json").exists()
    run("out", "INPUT.SHARED_VIEWS", "True")
    assert "holds a run with other settings" in run("out", "OPTIM.LR", "0.5", code=2)
    assert (tmp_path / "out/results.json").exists()


def test_an_evaluation_stands_under_the_name_of_what_was_trained(run, tmp_path):
    run("out", "TRAINER.CMP.LAMBDA", "0.05")
    test = ("--eval-only", f"--model-dir={tmp_path / 'out'}")
    assert "trained with TRAINER.CMP.LAMBDA 0.05, not 0.01" in run("a", *test, code=2)
    assert "trained with TRAINER.NAME CoOp_CMP, not CoOp:" in run(
        "b", *test, trainer="CoOp", code=2
    )
    run("c", *test, "TRAINER.CMP.LAMBDA", "0.05")


def test_a_setting_that_the_trainer_does_not_use_is_named(run):
    options = ("TRAINER.CMP.LAMBDA", "0.1", "OPTIM.MAX_EPOCH", "1")
    assert (
        "Note that CoOp does not use TRAINER.CMP.LAMBDA"
        in run("plain", *options, trainer="CoOp")[1]
    )
    assert "does not use" not in run("twin", *options)[1]
