"""``coop-cmp train``: CoOp's command line from end to end."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from coop_cmp import cli
from coop_cmp.cli import training
from coop_cmp.runs import read_predictions, read_results
from tests.conftest import ROOT

DIGITS = ("--dataset-config-file", str(ROOT / "configs/datasets/digits.yaml"))


def results(folder: Path) -> dict:
    return read_results(folder / "results.json")


def test_a_run_leaves_its_log_checkpoint_results_and_predictions(run, tmp_path):
    out = tmp_path / "out"
    stdout = run("out", "TRAINER.CMP.LAMBDA", "0.05")[1]
    assert "loss_cmp" in stdout
    assert "* ece:" in stdout
    assert (out / "log.txt").is_file()
    assert (out / "prompt_learner" / "model.pth.tar-3").is_file()
    record = results(out)
    settings = record["settings"]
    assert (settings["TRAINER.NAME"], settings["SEED"]) == ("CoOp_CMP", 1)
    assert settings["TRAINER.CMP.LAMBDA"] == 0.05
    sizes = {"classes": 3, "test": 12, "train": 6}
    assert sizes.items() <= record["sizes"].items()
    predictions = read_predictions(out / "predictions.npz")
    hits = predictions.logits.argmax(1) == predictions.labels
    assert record["metrics"]["accuracy"] == pytest.approx(hits.mean())
    assert predictions.text_features.shape == (3, 32)


def test_eval_only_gives_the_same_figures_and_without_an_output_directory_prints(run, tmp_path):
    logits, _ = run("out")
    test = ("--eval-only", f"--model-dir={tmp_path / 'out'}")
    assert (run("again", *test)[0] == logits).all()
    before = sorted([*tmp_path.iterdir(), *(tmp_path / "out").rglob("*")])
    assert "* ece:" in run("out", *test, "--output-dir=")[1]
    assert sorted([*tmp_path.iterdir(), *(tmp_path / "out").rglob("*")]) == before


def test_the_same_seed_gives_the_same_run_and_another_seed_another(run, tmp_path):
    first, again, other = (run(f"{i}", "SEED", seed)[0] for i, seed in enumerate("002"))
    assert (first == again).all()
    assert not (first == other).all()
    assert results(tmp_path / "0")["settings"]["SEED"] == 0


def test_an_interrupted_run_resumes_from_its_last_whole_checkpoint(run, tmp_path):
    options = ("TRAIN.CHECKPOINT_FREQ", "1")
    whole, _ = run("out", *options)
    folder = tmp_path / "out"
    (folder / "results.json").unlink()
    (folder / "prompt_learner" / "model.pth.tar-3").unlink()
    torn = folder / "prompt_learner" / "model.pth.tar-2"
    torn.write_bytes(torn.read_bytes()[:100])
    logits, stdout = run("out", *options)
    assert "epoch [2/3]" in stdout
    assert "epoch [1/3]" not in stdout
    assert (logits == whole).all()


def test_zero_shot_runs_without_anything_to_train(run, tmp_path):
    file = f"--config-file={ROOT / 'configs/trainers/CoOp/glyph.yaml'}"
    trainers = ("ZeroshotCLIP", "ZeroshotCLIP2")
    first, second = (run(trainer, file, trainer=trainer)[0] for trainer in trainers)
    assert [results(tmp_path / trainer)["sizes"]["trainable"] for trainer in trainers] == [0, 0]
    assert (first != second).any()


def test_epochs_follow_the_number_of_shots(tiny_weights):
    def epochs(*options: str) -> int:
        file = str(ROOT / "configs/trainers/CoOp/clip.yaml")
        args = ["--trainer", "CoOp", *DIGITS, "--config-file", file, *options]
        return training.setup_cfg(cli.parse(["train", *args])[1]).OPTIM.MAX_EPOCH

    expected = {"1": 50, "2": 100, "4": 100, "8": 200, "16": 200, "3": 100, "32": 200, "-1": 200}
    assert {k: epochs("DATASET.NUM_SHOTS", k) for k in expected} == expected
    assert epochs("DATASET.NUM_SHOTS", "8", "DATASET.NAME", "ImageNet") == 50
    assert epochs("DATASET.NUM_SHOTS", "8", "OPTIM.MAX_EPOCH", "7") == 7


def test_an_unreadable_image_is_named_by_a_loader_process_too(run, pictures, tmp_path):
    for image in pictures.glob("train/**/*.png"):
        image.write_bytes(image.read_bytes()[:60])
    error = run("out", "DATALOADER.NUM_WORKERS", "1", code=65)
    assert re.search(r"^error: .*\.png", error.splitlines()[-1]), error
    assert not (tmp_path / "out" / "results.json").exists()


def test_a_torn_checkpoint_is_refused(run, tmp_path):
    path = tmp_path / "out" / "prompt_learner" / "model.pth.tar-3"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK not a checkpoint")
    error = run("eval", "--eval-only", f"--model-dir={tmp_path / 'out'}", code=2)
    assert str(path) in error


def test_the_script_shows_no_traceback_and_exits_with_2(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["train.py", "--trainer", "CoOpp", *DIGITS])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith('error: unknown trainer "CoOpp"')


def test_a_directory_keeps_its_run_until_told_otherwise(run, tmp_path):
    run("out", trainer="CoOp")
    before = results(tmp_path / "out")
    run("out", trainer="CoOp")
    assert results(tmp_path / "out")["checkpoint"] == before["checkpoint"]
    other = ("OPTIM.LR", "0.5")
    assert "OPTIM.LR is 0.003, not 0.5" in run("out", *other, trainer="CoOp", code=2)
    error = run("out", trainer="ZeroshotCLIP", code=2)
    assert "TRAINER.NAME is 'CoOp', not 'ZeroshotCLIP'" in error
    assert results(tmp_path / "out")["digest"] == before["digest"]
    run("out", "--redo", *other, trainer="CoOp")
    assert results(tmp_path / "out")["settings"]["OPTIM.LR"] == 0.5
    assert results(tmp_path / "out")["checkpoint"] != before["checkpoint"]


def test_a_test_of_another_model_does_not_replace_the_first(run, tmp_path):
    run("a")
    run("b", "OPTIM.LR", "0.5")
    run("test", "--eval-only", f"--model-dir={tmp_path / 'a'}")
    record = results(tmp_path / "test")
    assert record["training"]["digest"] == results(tmp_path / "a")["digest"]
    assert record["checkpoint"] == results(tmp_path / "a")["checkpoint"]
    shutil.copytree(tmp_path / "b/prompt_learner", tmp_path / "copy of b/prompt_learner")
    for model in ("b", "copy of b"):  # a run, and a model of which nothing else is known
        error = run("test", "--eval-only", f"--model-dir={tmp_path / model}", code=2)
        assert "another" in error
    assert results(tmp_path / "test") == record


def test_a_start_that_fails_leaves_its_directory_free_for_the_corrected_one(run, tmp_path):
    views = ("INPUT.SHARED_VIEWS", "True")
    assert "INPUT.SHARED_VIEWS needs" in run("out", *views, "SEED", "-1", code=2)
    assert not (tmp_path / "out/run.json").exists()
    run("out", *views)


def test_an_evaluation_stands_under_the_name_of_what_was_trained(run, tmp_path):
    run("out", "TRAINER.CMP.LAMBDA", "0.05")
    test = ("--eval-only", f"--model-dir={tmp_path / 'out'}")
    assert "trained with TRAINER.CMP.LAMBDA 0.05, not 0.01" in run("a", *test, code=2)
    error = run("b", *test, trainer="CoOp", code=2)
    assert "trained with TRAINER.NAME CoOp_CMP, not CoOp:" in error
    run("c", *test, "TRAINER.CMP.LAMBDA", "0.05")


def test_a_setting_that_the_trainer_does_not_use_is_named(run):
    options = ("TRAINER.CMP.LAMBDA", "0.1", "OPTIM.MAX_EPOCH", "1")
    note = "does not use TRAINER.CMP.LAMBDA"
    assert f"Note that CoOp {note}" in run("plain", *options, trainer="CoOp")[1]
    assert note not in run("twin", *options)[1]
