"""Every method on other devices: simulated here, real where ``--device`` names one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from coop_cmp.losses.names import TERMS
from coop_cmp.trainers.base import PromptTrainer
from tests.fake_gpu import CUDA, fake_gpu, on_fake_gpu
from tests.trainers.conftest import CLASSES, METHODS, steps

TWINS = [f"{method}_CMP" for method in METHODS]  # their step runs the baseline's


def prepared(trainer: Any, device: torch.device) -> Any:
    """A trainer whose step can be traced: its device, its first batch, no optimiser."""
    trainer.device, trainer.num_batches, trainer.epoch, trainer.batch_idx = device, 9, 0, 0
    trainer.update = lambda loss: None
    return trainer


def traced_step(trainer: Any) -> dict[str, Any]:
    """What a step reports when its tensors are fake; nothing of it was read on the host."""
    mode = FakeTensorMode()
    trainer = prepared(trainer, CUDA)
    trainer.model = on_fake_gpu(trainer.model, mode)
    # What is computed on the host is real there, and would be fake in the mode.
    if hasattr(trainer.learner, "of_step"):
        chosen = trainer.learner.of_step(0)
        trainer.learner.of_step = lambda step: chosen
    zero_shot = getattr(trainer, "zero_shot", None)
    if zero_shot is not None and zero_shot.visual is not None:
        zero_shot.visual = on_fake_gpu(zero_shot.visual, mode)
    with fake_gpu(mode):
        if zero_shot is not None:
            zero_shot.text = torch.zeros(zero_shot.text.shape, device=CUDA)
            zero_shot.scale = torch.ones((), device=CUDA)
        batch = {
            "img": torch.zeros(6, 3, 32, 32),
            "label": torch.zeros(6, dtype=torch.long),
        }
        return trainer.forward_backward(batch)


@pytest.mark.parametrize("precision", ["fp32", "amp", "fp16"])
@pytest.mark.parametrize("name", TWINS)
def test_a_step_stays_on_the_gpu_and_reads_nothing_back(build, name, precision):
    node = name.removesuffix("_CMP").upper()
    report = traced_step(build(name, f"TRAINER.{node}.PREC", precision))
    assert "loss_cmp" in report
    for value in report.values():
        assert value.device.type == "cuda"
        assert value.dtype == torch.float32


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_contrastive_fine_tuning_asks_the_host_which_classes_a_batch_has(
    build, precision, monkeypatch
):
    def unique(label: torch.Tensor) -> torch.Tensor:
        assert label.device.type == "cpu"
        present = torch.arange(2)
        present.tolist = lambda: [0, 1]  # type: ignore[method-assign]  # fake tensors have none
        return present

    monkeypatch.setattr(torch.Tensor, "unique", unique)
    options = ("TRAINER.CLIPFT.MODE", "FT-Contrastive", "TRAINER.CLIPFT.PREC", precision)
    report = traced_step(build("CLIPFT", *options))
    assert {(value.device.type, value.dtype) for value in report.values()} == {
        ("cuda", torch.float32)
    }


@pytest.mark.parametrize("term", TERMS)
def test_no_term_reads_anything_back(build, term):
    for method in ("CoOp", "CLIPFT"):
        assert f"loss_{term.lower()}" in traced_step(build(f"{method}_{term}"))


@pytest.mark.parametrize("precision", ["fp32", "amp", "fp16"])
@pytest.mark.parametrize("name", ["ZeroshotCLIP", "ZeroshotCLIP2", *METHODS])
def test_a_test_batch_stays_on_the_gpu(build, name, precision):
    node = "COOP" if name.startswith("Zero") else name.upper()
    trainer, mode = build(name, f"TRAINER.{node}.PREC", precision), FakeTensorMode()
    trainer.device, trainer.model = CUDA, on_fake_gpu(trainer.model.eval(), mode)
    with fake_gpu(mode), torch.no_grad():
        logits = trainer.model_inference(torch.zeros(6, 3, 32, 32, device=CUDA))
    assert (logits.device.type, logits.dtype) == ("cuda", torch.float32)


def test_a_fake_gpu_notices_what_a_real_one_would_suffer_from():
    with fake_gpu(FakeTensorMode()):
        there = torch.zeros(3, device=CUDA)
        with pytest.raises(Exception, match="device"):
            there + torch.zeros(3)
        with pytest.raises(Exception, match="_local_scalar_dense"):
            float(there.sum())
        with torch.autocast("cuda", dtype=torch.float16):
            assert (there[None] @ there[:, None]).dtype == torch.float16


@pytest.mark.parametrize("name", TWINS)
def test_gradients_stay_on_the_device(build, name, monkeypatch):
    """The ``meta`` device has a backward pass without a GPU, but no mixed precision."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **options: nullcontext())
    trainer, meta = build(name), torch.device("meta")
    trainer.model.to(meta)
    prepared(trainer, meta).update = lambda loss: loss.backward()
    report = trainer.forward_backward(trainer.train_loader_x[0])
    assert {value.device for value in report.values()} == {meta}
    for parameter in trainer.learner.parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None
            assert parameter.grad.device == meta


@pytest.mark.parametrize(("precision", "close"), [("fp32", 1e-3), ("amp", 0.05), ("fp16", 0.05)])
@pytest.mark.parametrize("name", TWINS)
def test_training_on_a_device_is_training_on_the_cpu(build, name, precision, close, device):
    here = build(name, "DEVICE", "cpu")
    node = name.removesuffix("_CMP").upper()
    there = build(name, "DEVICE", device, f"TRAINER.{node}.PREC", precision)
    for ours, theirs in zip(steps(there), steps(here), strict=True):
        # In half precision single predictions change, and with them accuracy and penalty jump.
        compared = ours if precision == "fp32" else {"loss": ours["loss"]}
        expected = {name: theirs[name] for name in compared}
        assert compared == pytest.approx(expected, rel=close, abs=close)
    assert next(there.learner.parameters()).device.type == torch.device(device).type
    assert len(there.model_inference(there.test_loader[0]["img"].to(device))[0]) == len(CLASSES)


@pytest.mark.parametrize("name", ["ZeroshotCLIP", "CoOp_CMP", "BPEFT", "CTPT"])
def test_a_whole_run_on_a_device_is_one_on_the_cpu(run, name, device):
    """With stored features and shared views, both of which belong to a kind of device."""
    options = ("INPUT.SHARED_VIEWS", "True", "OPTIM.LR", "0.01")
    here, _ = run("here", "--device=cpu", *options, trainer=name)
    there, _ = run("there", f"--device={device}", *options, trainer=name)
    assert np.abs(there - here).max() <= 1e-2 * np.abs(here).max()


def test_a_run_begun_on_the_cpu_goes_on_on_a_device(run, device, tmp_path, monkeypatch):
    options = ("TRAIN.CHECKPOINT_FREQ", "1", "TRAINER.COOP.PREC", "amp", "OPTIM.LR", "0.01")
    whole, _ = run("whole", "--device=cpu", *options)
    with monkeypatch.context() as patch:
        patch.setattr(PromptTrainer, "test", mock.Mock(side_effect=OSError("killed")))
        run("moved", "--device=cpu", *options, code=2)
    last = tmp_path / "moved/prompt_learner/model.pth.tar-3"
    last.unlink()
    last.with_name("checkpoint").write_text("model.pth.tar-2\n")
    moved, said = run("moved", f"--device={device}", *options)
    assert "Previous epoch: 2" in said
    assert np.abs(moved - whole).max() <= 0.05 * np.abs(whole).max()
