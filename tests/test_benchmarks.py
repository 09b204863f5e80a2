"""benchmarks/: what they compare gives equal results, and what they count is what happened."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield
    for name in ("common", "evaluate", "text_encoder", "train_step", "device", "hours", "tuning"):
        sys.modules.pop(name, None)


def test_the_arithmetic_of_frozen_attention_is_counted():
    from common import count_flops

    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.zeros(1, 5, 8)
    with torch.no_grad():
        flops = count_flops(lambda: attention(x, x, x, need_weights=False))
    assert flops >= 2 * 5 * 8 * (3 * 8 + 8)  # queries, keys and values; the output projection
    assert torch.backends.mha.get_fastpath_enabled()


def test_the_model_of_a_gpu_counts_what_the_passes_compute():
    import device

    found = {way: device.trace(way, 20, "fp16", True) for way in ("naive", "shared")}
    flops = {way: sum(f for f, _ in kernels) for way, kernels in found.items()}
    assert flops["naive"] > 10 * flops["shared"]
    assert len(found["shared"]) <= len(found["naive"])
    few, many = (len(device.trace("shared", classes, "fp16", True)) for classes in (40, 400))
    assert many < 1.05 * few
    gpu = device.Gpu(launch=1.0, rate={"fp16": 10.0}, bandwidth=100.0, share=0.5)
    kernels = [(10, 0), (0, 100), (5, 500)]  # 2 s by rate, 1 s by bandwidth, 5 s by bandwidth
    expected = {"host": 3.0, "device": 8.0, "seconds": 8.0}
    assert device.estimate(kernels, gpu, "fp16") == expected


@pytest.mark.parametrize("case", ["CoCoOp, 4 images, 50 classes", "MaPLe, 9 layers"])
def test_both_text_encoders_are_measured_on_the_same_prompts(case):
    import text_encoder

    found = [text_encoder.measure(case, way, 1, True) for way in ("naive", "shared")]
    (naive, theirs), (shared, ours) = found
    assert naive["tokens"] > 10 * shared["tokens"]
    assert naive["GFLOP"] > 10 * shared["GFLOP"]
    differences = text_encoder.differences(ours, theirs)
    assert differences["features differ"] < 1e-5
    assert differences["gradients differ"] < 1e-4


@pytest.mark.parametrize("method", ["CoOp", "CoCoOp"])
def test_all_ways_of_a_step_have_the_same_loss(method):
    import train_step

    found = [train_step.measure("ViT-B-16", method, way, 1, True) for way in train_step.WAYS]
    losses = [run["loss"] for run in found]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-4)
    flops = [run["flops"] for run in found]
    assert flops == sorted(flops, reverse=True)
    assert len(set(flops)) == 3


def test_an_evaluation_counts_the_images_and_prompts_it_encodes(tmp_path):
    import evaluate

    evaluate.make_pictures(tmp_path / "pictures", classes=5, images=110)
    evaluate.make_weights(tmp_path, small=True)
    found = [evaluate.measure(tmp_path, way, small=True) for way in evaluate.WAYS]
    assert [run["images"] for run in found] == [110, 110, 110, 0]
    assert [run["passes"] for run in found] == [2, 1, 1, 1]
    assert found[1]["metrics"] == found[2]["metrics"] == found[3]["metrics"]
    assert evaluate.differs(tmp_path, "with the store, second run") < 1e-4


def test_all_ways_of_tuning_give_the_same_logits():
    import tuning

    with torch.no_grad():
        plain, *others = (tuning.make_pass(way, 5, 3, True)() for way in tuning.WAYS)
    for logits in others:
        torch.testing.assert_close(logits, plain, atol=1e-3, rtol=0)


def test_hours_count_shared_views_and_features_once_and_a_trained_tower_always(monkeypatch):
    import hours
    from device import GPUS

    from coop_cmp.report.definitions import table
    from coop_cmp.runs.project import Project

    monkeypatch.setattr(hours, "image_flops", lambda backbone: 35_000_000_000)
    monkeypatch.setattr(hours, "text_kernels", lambda *step: [(10**9, 10**6)])
    account = hours.Account(Project(ROOT / "output"), GPUS["A100"])
    plain, twin = (
        next(run for run in table("calibration_metrics").runs() if run.trainer == name)
        for name in ("CoOp", "CoOp_CMP")
    )
    first, second = account.seconds(plain), account.seconds(twin)
    batch, epochs = account.schedule(plain)
    classes, test = account.sizes[plain.dataset].classes, account.sizes[plain.dataset].test
    images = test + epochs * classes * plain.shots
    assert first - second == pytest.approx(images / hours.DECODED)
    steps = epochs * (classes * plain.shots // batch)
    assert second == pytest.approx(hours.START + steps * 8e-6, rel=0.01)  # a launch each
    tuned = next(run for run in table("cmp_ablation").runs() if run.trainer == "CLIPFT")
    assert account.seconds(tuned) == account.seconds(tuned)
