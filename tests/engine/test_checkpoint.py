"""Checkpoints: whole, safe to read, and old ones too."""

from __future__ import annotations

import os
import pickle
import resource
import signal
from collections import OrderedDict

import pytest
import torch
from dassl.config import get_cfg_default
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.utils import (
    load_checkpoint,
    load_pretrained_weights,
    resume_from_checkpoint,
    save_checkpoint,
)
from torch import nn


class Bomb:
    """Runs code when it is unpickled without care."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


def cosine_with_warmup(model):
    cfg = get_cfg_default().OPTIM
    cfg.NAME, cfg.LR, cfg.LR_SCHEDULER, cfg.MAX_EPOCH = "sgd", 0.002, "cosine", 6
    cfg.WARMUP_EPOCH, cfg.WARMUP_TYPE = 1, "constant"
    optimizer = build_optimizer(model, cfg)
    return optimizer, build_lr_scheduler(optimizer, cfg)


def train(model, epochs, *stepped):
    for _ in range(epochs):
        model(torch.ones(1, 2)).sum().backward()
        for one in stepped:
            one.step()


def test_a_checkpoint_comes_back_and_is_noted_under_its_name(tmp_path, capsys):
    state = {"state_dict": OrderedDict({"module.w": torch.ones(2)}), "epoch": 3, "more": [1, "x"]}
    save_checkpoint(state, str(tmp_path / "net"), is_best=True)
    path = tmp_path / "net" / "model.pth.tar-3"
    assert capsys.readouterr().out.splitlines()[0] == f"Checkpoint saved to {path}"
    assert (tmp_path / "net" / "checkpoint").read_text() == "model.pth.tar-3\n"
    for name in ("model.pth.tar-3", "model-best.pth.tar"):
        loaded = load_checkpoint(str(tmp_path / "net" / name))
        assert torch.equal(loaded["state_dict"]["w"], torch.ones(2))
        assert loaded["more"] == [1, "x"]
    assert "module.w" in state["state_dict"]
    save_checkpoint(state, str(tmp_path / "net"), model_name="mine.pth")
    assert (tmp_path / "net" / "checkpoint").read_text() == "mine.pth\n"


def test_a_checkpoint_that_is_not_there_or_not_named_is_refused(tmp_path):
    with pytest.raises(ValueError, match="File path is None"):
        load_checkpoint(None)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"none\.pth"):
        load_checkpoint(str(tmp_path / "none.pth"))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.99])
def test_a_torn_checkpoint_is_refused_by_name_wherever_it_is_cut(tmp_path, share):
    save_checkpoint({"state_dict": {"w": torch.rand(99)}, "epoch": 1}, str(tmp_path))
    whole = (tmp_path / "model.pth.tar-1").read_bytes()
    (tmp_path / "torn").write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(OSError, match=r'cannot load the checkpoint ".*torn".*delete the file'):
        load_checkpoint(str(tmp_path / "torn"))


def test_nothing_in_a_checkpoint_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {}, "epoch": 1, "optimizer": Bomb()}, "bomb.pth")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Bomb(), protocol=2))
    for name in ("bomb.pth", "plain.pkl"):
        with pytest.raises(OSError, match="not a checkpoint of plain data"):
            load_checkpoint(name)
    assert not (tmp_path / "exploded").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r'cannot write the checkpoint ".*file.*--output-dir'):
        save_checkpoint({"state_dict": {}, "epoch": 1}, str(tmp_path / "file" / "net"))


def test_a_full_disk_is_an_os_error_and_leaves_no_part_behind(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write the checkpoint .* free some space"):
            save_checkpoint({"state_dict": {"w": torch.rand(9999)}, "epoch": 1}, str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.iterdir())


def test_resuming_a_single_model_restores_optimizer_and_schedule(tmp_path):
    model = nn.Linear(2, 1)
    optimizer, scheduler = cosine_with_warmup(model)
    train(model, 2, optimizer, scheduler)
    state = {
        "state_dict": model.state_dict(),
        "epoch": 2,
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
    }
    save_checkpoint(state, str(tmp_path))
    other = nn.Linear(2, 1)
    optimizer_2, scheduler_2 = cosine_with_warmup(other)
    assert resume_from_checkpoint(str(tmp_path), other, optimizer_2, scheduler_2) == 2
    assert torch.equal(model.weight, other.weight)
    train(model, 1, optimizer, scheduler)
    train(other, 1, optimizer_2, scheduler_2)
    assert optimizer.param_groups[0]["lr"] == optimizer_2.param_groups[0]["lr"]
    with pytest.raises(OSError, match="does not fit this model"):
        resume_from_checkpoint(str(tmp_path), nn.Linear(3, 1))


def test_a_checkpoint_of_upstream_with_live_objects_loads_and_its_schedule_goes_on(tmp_path):
    """Upstream's scheduler entry holds the main scheduler, and in it the optimizer, as objects."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)
    successor = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6.0)
    train(model, 3, optimizer, successor)
    # One epoch of warm-up before these three.
    fields = {"last_epoch": 1, "_step_count": 2, "base_lrs": [0.002], "warmup_epoch": 1}
    state = {
        "state_dict": model.state_dict(),
        "epoch": 4,
        "optimizer": optimizer.state_dict(),
        "scheduler": {**fields, "cons_lr": 1e-5, "successor": successor, "_last_lr": [0.001]},
        "val_result": None,
    }
    torch.save(state, tmp_path / "model.pth.tar-4")
    (tmp_path / "checkpoint").write_text("model.pth.tar-4\n")

    loaded = load_checkpoint(str(tmp_path / "model.pth.tar-4"))
    assert type(loaded["scheduler"]["successor"]) is not type(successor)
    other = nn.Linear(2, 1)
    optimizer_2, scheduler_2 = cosine_with_warmup(other)
    assert resume_from_checkpoint(str(tmp_path), other, optimizer_2, scheduler_2) == 4
    rates = []
    for _ in range(3):
        rates.append(optimizer_2.param_groups[0]["lr"])
        optimizer_2.step()
        scheduler_2.step()
    assert rates == pytest.approx([0.001, 0.0005, 0.000134], abs=1e-6)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "RAdam"])
@pytest.mark.parametrize("schedule", ["StepLR", "MultiStepLR"])
def test_upstream_checkpoints_of_every_optimizer_and_schedule_load(tmp_path, name, schedule):
    model = nn.Linear(2, 1)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)
    train(model, 1, optimizer)
    argument = [1, 2] if schedule == "MultiStepLR" else 2
    scheduler = getattr(torch.optim.lr_scheduler, schedule)(optimizer, argument)
    torch.save({"scheduler": {"successor": scheduler}}, tmp_path / "old")
    stub = load_checkpoint(str(tmp_path / "old"))["scheduler"]["successor"]
    assert vars(stub)["base_lrs"] == [0.1]


def test_only_weights_of_the_same_name_and_size_are_taken(tmp_path, capsys):
    source = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 5))
    torch.save({"state_dict": source.state_dict()}, tmp_path / "wrapped")
    parallel = {"module." + key: value for key, value in source.state_dict().items()}
    torch.save(parallel, tmp_path / "parallel")
    for name in ("wrapped", "parallel"):
        target = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 4))
        load_pretrained_weights(target, str(tmp_path / name))
        assert torch.equal(target[0].weight, source[0].weight)
        out = capsys.readouterr().out
        assert f"Successfully loaded pretrained weights from {tmp_path / name}" in out
        assert "['1.weight', '1.bias']" in out
    torch.save([1, 2], tmp_path / "foreign")
    with pytest.raises(OSError, match="does not fit this model"):
        load_pretrained_weights(source, str(tmp_path / "foreign"))
    with pytest.warns(UserWarning, match="Cannot load"):
        load_pretrained_weights(nn.Linear(7, 7), str(tmp_path / "wrapped"))
