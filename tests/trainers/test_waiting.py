"""How often the host waits for the device: once per print, whatever happens."""

from __future__ import annotations

from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import dassl.engine.progress
import pytest
import torch
from dassl.utils.checkpoint import load_optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from coop_cmp.trainers.base import fused
from tests.clip.test_text import kernels
from tests.trainers.conftest import METHODS, random_batches


class HostReads(TorchDispatchMode):
    """Counts the numbers that are read one by one, and what depends on them."""

    names = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "_unique2", "masked_select")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = function.overloadpacket.__name__
        if name in self.names:
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


def epoch_of(build: Any, name: str, *options: Any) -> Any:
    """A trainer before an epoch of 7 batches, with a print after every third."""
    trainer = build(name, "TRAIN.PRINT_FREQ", 3, *options)
    trainer.train_loader_x = random_batches(7, 6, 5, 32)
    trainer.output_dir = "nowhere"
    return trainer


@pytest.mark.parametrize("method", METHODS)
def test_an_epoch_reads_once_per_print_and_once_at_its_end(build, method, monkeypatch):
    trainer, read, sizes = epoch_of(build, f"{method}_CMP"), dassl.engine.progress.read, []

    def noted(tensors: Any) -> list[float]:
        sizes.append(len(tensors))
        return read(tensors)

    monkeypatch.setattr(dassl.engine.progress, "read", noted)
    reads = HostReads()
    step = trainer.forward_backward

    def watched(batch: Any) -> Any:
        with reads:
            return step(batch)

    if method == "ProDA":  # its random order is made on the host
        monkeypatch.setattr(trainer.learner, "of_step", lambda step: [0, 3, 5, 7])
    watched(trainer_ready(trainer).train_loader_x[0])  # what is computed once is computed
    reads.seen.clear()
    trainer.unread_losses.check()
    trainer.forward_backward = watched
    trainer.run_epoch()
    assert reads.seen == []
    assert len(sizes) == 3
    assert sizes[0] == sizes[1] == 3 * sizes[2]


def trainer_ready(trainer: Any) -> Any:
    trainer.num_batches, trainer.batch_idx, trainer.epoch = 7, 0, 0
    return trainer


def test_the_printed_means_are_those_of_every_batch(build, capsys):
    trainer = epoch_of(build, "CoOp", "OPTIM.LR", 1e-12)
    expected = [
        float(trainer_ready(trainer).forward_backward(b)["loss"]) for b in trainer.train_loader_x
    ]
    capsys.readouterr()
    trainer.run_epoch()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch [")]
    for line, count in zip(lines, (3, 6), strict=True):
        mean = sum(expected[:count]) / count
        assert f"loss {expected[count - 1]:.4f} ({mean:.4f})" in line


def test_a_loss_that_is_not_finite_is_reported_with_its_step_and_nothing_is_saved(build, tmp_path):
    trainer = epoch_of(build, "CoOp_CMP")
    trainer.output_dir = str(tmp_path)
    trainer.train_loader_x[3]["img"][:] = float("nan")
    with pytest.raises(FloatingPointError, match=r"infinite or NaN! \(epoch 1, batch 4\b"):
        trainer.run_epoch()
    trainer_ready(trainer).forward_backward(trainer.train_loader_x[3])
    with pytest.raises(FloatingPointError, match=r"\(epoch 1, batch 1\b"):
        trainer.save_model(0, str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_fused_optimiser_makes_the_same_step_and_finds_infinite_gradients_itself(name):
    results = []
    for change in (fused, lambda optim: optim):
        parameter = torch.nn.Parameter(torch.ones(3))
        group = SimpleNamespace(params=[parameter], lr=0.1, weight_decay=0.01)
        optim = change(getattr(torch.optim, name)([vars(group)], lr=0.5))
        scaler = torch.amp.GradScaler("cuda", enabled=False)
        scaler.scale((parameter * torch.arange(3)).sum()).backward()
        scaler.step(optim)
        assert optim.param_groups[0]["lr"] == 0.1
        results.append(parameter.detach())
    assert torch.allclose(*results, atol=1e-6)
    assert getattr(fused(optim), "_step_supports_amp_scaling", False)
    other = torch.optim.Rprop([parameter])
    assert fused(other) is other


@pytest.mark.parametrize("infinite", [(0,), (0, 3), ()])
def test_a_fused_optimiser_that_skips_steps_goes_on_as_any_other(infinite, monkeypatch):
    """A scaler asks for that; fresh memory holds anything, here NaN."""
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: empty_like(*a, **k).fill_(torch.nan))
    results = []
    for change in (fused, lambda optim: optim):
        parameter = torch.nn.Parameter(torch.ones(3))
        optim = change(torch.optim.SGD([parameter], lr=0.1, momentum=0.9, weight_decay=0.01))
        scale = torch.ones(())
        for step in range(5):
            parameter.grad = torch.arange(3.0) + step
            skipped = step in infinite
            if hasattr(optim, "_step_supports_amp_scaling"):
                optim.grad_scale, optim.found_inf = scale, torch.tensor(float(skipped))
                optim.step()
            elif not skipped:
                optim.step()
        results.append(parameter.detach())
    assert torch.allclose(*results, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_a_state_of_a_plain_optimiser_serves_a_fused_one_and_the_other_way_round(name):
    """Also one whose weights lie otherwise in memory, as those of convolutions do on a GPU."""
    options = {"momentum": 0.9} if name == "SGD" else {}
    make = partial(getattr(torch.optim, name), lr=0.1, **options)
    results = []
    for before, after in product((lambda optim: optim, fused), repeat=2):
        parameter = torch.nn.Parameter(torch.ones(2, 3, 4, 4))
        first = before(make([parameter]))
        parameter.grad = torch.ones_like(parameter)
        first.step()
        moved = torch.nn.Parameter(parameter.detach().to(memory_format=torch.channels_last))
        second = after(make([moved]))
        load_optimizer(second, first.state_dict())
        assert second.param_groups[0]["fused"] is (True if after is fused else None)
        tensors = [value for key, value in second.state[moved].items() if key != "step"]
        assert tensors
        assert all(value.stride() == moved.stride() for value in tensors)
        moved.grad = torch.full_like(moved, 2.0)
        second.step()
        results.append(moved.detach())
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])


@pytest.mark.parametrize(("method", "most"), [("CoOp", 760), ("CoCoOp", 1100), ("ProDA", 3000)])
def test_a_step_at_the_depth_of_real_models_launches_few_kernels(build, method, most):
    names = [f"thing {'x ' * (i % 7)}{i}" for i in range(50)]
    trainer = build(method, model="DeepCLIP", classnames=names)
    label = torch.arange(4)
    features = torch.nn.functional.normalize(torch.randn(4, 32), dim=-1)

    def step() -> None:
        losses = trainer.model.losses(features, label).losses
        torch.stack(list(losses.values())).sum().backward()

    step()  # what is kept for later steps is made
    assert kernels(step) <= most
