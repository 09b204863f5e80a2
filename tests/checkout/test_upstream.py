"""The repairs of upstream Dassl, on a scheduler written the way upstream's is."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from coop_cmp.checkout.upstream import repair

EPOCHS = 6


class Warmup(LRScheduler):
    """Calls torch as upstream's does and, as upstream's, keeps the main scheduler as an object."""

    def __init__(self, optimizer, successor, warmup_epoch, last_epoch=-1, verbose=False):
        self.successor = successor
        self.warmup_epoch = warmup_epoch
        super().__init__(optimizer, last_epoch, verbose)

    def get_lr(self):
        if self.last_epoch >= self.warmup_epoch:
            return self.successor.get_last_lr()
        return [1e-5 for _ in self.base_lrs]

    def step(self, epoch=None):
        if self.last_epoch >= self.warmup_epoch:
            self.successor.step(epoch)
            self._last_lr = self.successor.get_last_lr()
        else:
            super().step(epoch)


@pytest.fixture
def safe_globals():
    known = torch.serialization.get_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(known)


@pytest.fixture
def repaired(monkeypatch, safe_globals):
    """The repair of the class, which is undone afterwards."""
    monkeypatch.setattr("dassl.optim.lr_scheduler._BaseWarmupScheduler", Warmup, raising=False)
    for name in ("__init__", "load_state_dict"):
        monkeypatch.setattr(Warmup, name, getattr(Warmup, name))
    repair()


def schedule() -> tuple[torch.optim.Optimizer, Warmup]:
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=0.002, momentum=0.9)
    return optimizer, Warmup(optimizer, CosineAnnealingLR(optimizer, EPOCHS), 1)


def rates(optimizer: torch.optim.Optimizer, scheduler: Warmup, epochs: int) -> list[float]:
    """The learning rate of each epoch."""
    seen = []
    for _ in range(epochs):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.param_groups[0]["params"][0].grad = torch.ones(3)
        optimizer.step()
        scheduler.step()
    return seen


def test_warm_up_schedulers_run_again(repaired):
    expected = [1e-5, 0.002, 0.001866, 0.0015, 0.001, 0.0005]
    assert rates(*schedule(), EPOCHS) == pytest.approx(expected, rel=1e-3)


def test_a_checkpoint_with_live_objects_is_read_safely_and_resumes_the_schedule(repaired, tmp_path):
    optimizer, scheduler = schedule()
    rates(optimizer, scheduler, 3)
    file = tmp_path / "model.pth.tar-3"
    state = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "epoch": 3}
    torch.save(state, file)
    rest = rates(optimizer, scheduler, 3)

    checkpoint = torch.load(file, weights_only=True)
    optimizer, scheduler = schedule()
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    assert scheduler.successor.optimizer is optimizer
    assert rates(optimizer, scheduler, 3) == pytest.approx(rest)


def test_a_checkpoint_that_names_code_is_still_refused(repaired, tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    file = tmp_path / "model.pth.tar-1"
    torch.save({"scheduler": Evil()}, file)
    with pytest.raises(pickle.UnpicklingError, match="weights"):
        torch.load(file, weights_only=True)


@pytest.mark.usefixtures("safe_globals")
def test_the_engine_of_this_project_needs_no_repair(monkeypatch, capsys):
    from dassl.optim import lr_scheduler

    monkeypatch.delattr(lr_scheduler, "_BaseWarmupScheduler", raising=False)
    repair()
    assert not capsys.readouterr().out


@pytest.mark.usefixtures("safe_globals")
def test_names_that_numpy_has_given_up_are_there_again(monkeypatch):
    monkeypatch.delattr(np, "int", raising=False)
    repair()
    assert np.int is int


@pytest.mark.usefixtures("safe_globals")
def test_numpy_arrays_in_files_of_a_checkout_are_read_safely(tmp_path):
    arrays = [np.arange(4).reshape(2, 2), np.float32([0.5]), np.array([True]), np.ones(2)]
    torch.save(arrays, tmp_path / "features.pt")
    repair()
    read = torch.load(tmp_path / "features.pt", weights_only=True)
    assert all(
        a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(arrays, read, strict=True)
    )
