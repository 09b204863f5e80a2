"""Trackers are told every scalar, the settings and the test, without a network."""

import sys

import pytest

from coop_cmp.config import SETTINGS
from coop_cmp.config.registry import read
from coop_cmp.errors import UserError
from coop_cmp.trackers import TRACKERS, Trackers

SETTINGS_OF_RUN = {"OPTIM.LR": 0.5, "TRAINER.NAME": "CoOp", "INPUT.SIZE": [8, 8]}


def follow(names, folder):
    trackers = Trackers(names, str(folder / "tensorboard"), SETTINGS_OF_RUN)
    for step, loss in enumerate((2.0, 1.0)):
        trackers.add_scalar("train/loss", loss, step)
    trackers.add_scalar("test/ece", 4.5, 1)
    trackers.close()
    return trackers


def test_the_setting_offers_all_trackers():
    assert SETTINGS["LOGGER"].default == ("tensorboard",)
    assert SETTINGS["LOGGER"].free, "it changes no number"
    assert list(read("LOGGER", list(TRACKERS))) == list(TRACKERS)
    with pytest.raises(UserError, match="tensorboard, wandb or mlflow"):
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
    monkeypatch.setattr("coop_cmp.trackers.PATIENCE", 0)
    board = TRACKERS["tensorboard"](str(tmp_path), SETTINGS_OF_RUN)
    for step in range(3):
        board.add("train/loss", 2.0 - step, step)
        board.add("train/acc", 50.0, step)
    board.writer.flush()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    seen = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert seen == [(0, 2), (1, 1)], "the last step may get more values"
    assert len(events.Scalars("train/acc")) == 2
    board.close({})


def test_wandb_works_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    follow(["wandb"], tmp_path)
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    content = b"".join(file.read_bytes() for file in run.glob("*.wandb"))
    assert b"train/loss" in content
    assert b"OPTIM.LR" in content


def test_mlflow_works_offline(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    follow(["mlflow"], tmp_path)
    (metric,) = (tmp_path / "runs").glob("*/*/metrics/train/loss")
    assert [float(line.split()[1]) for line in metric.read_text().splitlines()] == [2, 1]
    (rate,) = (tmp_path / "runs").glob("*/*/params/OPTIM.LR")
    assert rate.read_text() == "0.5"


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=f"pip install {name}"):
        Trackers([name], str(tmp_path), {})


def test_nothing_is_needed(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert follow(["tensorboard"], tmp_path).trackers == []
    assert "not installed" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
