"""Runs can be followed: every scalar, the settings and the test, without a network."""

import sys
from types import SimpleNamespace

import pytest

from coop_cmp.config import SETTINGS
from coop_cmp.config.registry import read
from coop_cmp.errors import UserError
from coop_cmp.trainers.trackers import RunWriter

SETTINGS_OF_RUN = {"OPTIM.LR": 0.5, "TRAINER.NAME": "CoOp", "INPUT.SIZE": [8, 8]}


def follow(names, folder):
    writer = RunWriter(names, str(folder / "tensorboard"), SETTINGS_OF_RUN)
    for step, loss in enumerate((2.0, 1.0)):
        writer.add_scalar("train/loss", loss, step)
    writer.add_scalar("test/ece", 4.5, 1)
    writer.close()


def test_the_setting_offers_both():
    assert SETTINGS["LOGGER"].default == ("tensorboard",)
    assert SETTINGS["LOGGER"].free, "it changes no number"
    assert list(read("LOGGER", ["tensorboard", "wandb"])) == ["tensorboard", "wandb"]
    with pytest.raises(UserError, match="tensorboard or wandb"):
        read("LOGGER", ["paper"])


def test_tensorboard_has_scalars_and_hparams(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    follow(["tensorboard"], tmp_path)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.value for event in events.Scalars("train/loss")] == [2, 1]
    hparams = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"OPTIM.LR" in hparams
    assert b"CoOp" in hparams


def test_tensorboard_can_be_followed_while_a_run_goes_on(tmp_path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setattr("coop_cmp.trainers.trackers.PATIENCE", 0)
    board = RunWriter(["tensorboard"], str(tmp_path), SETTINGS_OF_RUN)
    for step in range(3):
        board.add_scalar("train/loss", 2.0 - step, step)
        board.add_scalar("train/acc", 50.0, step)
    board.writer.flush()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    seen = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert seen == [(0, 2), (1, 1)], "the last step may get more values"
    assert len(events.Scalars("train/acc")) == 2
    board.close()


def test_wandb_works_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    follow(["wandb"], tmp_path)
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    content = b"".join(file.read_bytes() for file in run.glob("*.wandb"))
    assert b"train/loss" in content
    assert b"OPTIM.LR" in content


def test_wandb_reads_the_files_of_tensorboard(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    seen = {}

    def init(**arguments):
        seen.update(arguments, files=list(tmp_path.rglob("*tfevents*")))
        return SimpleNamespace(finish=lambda: seen.update(done=list(tmp_path.rglob("*tfevents*"))))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    follow(["wandb"], tmp_path)
    assert seen["sync_tensorboard"] is True
    assert seen["config"] == SETTINGS_OF_RUN
    assert not seen["files"], "it begins first"
    assert seen["done"], "and ends last"


def test_a_tracker_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="pip install wandb"):
        RunWriter(["wandb"], str(tmp_path), {})


def test_nothing_is_needed(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    follow(["tensorboard"], tmp_path)
    assert "not installed" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
