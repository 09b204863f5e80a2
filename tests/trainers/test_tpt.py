"""Test-time prompt tuning: against plain loops, from end to end, and with wrong settings."""

from __future__ import annotations

import re
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from coop_cmp.clip import LoadedCLIP
from coop_cmp.config.resolve import resolve
from coop_cmp.errors import UserError
from coop_cmp.features import loaders
from coop_cmp.features.views import ManyViews
from coop_cmp.runs.records import read_results
from coop_cmp.trainers.base import PromptedCLIP
from coop_cmp.trainers.tpt import (
    CTPT,
    TPT,
    TunedCLIP,
    confident_logits,
    dispersion,
    first_step,
    marginal_entropy,
    orthogonality,
)
from tests.conftest import ROOT
from tests.fake_gpu import CUDA, fake_gpu, on_fake_gpu
from tests.small_clip import small_clip, tokenizer
from tests.trainers import plain_tpt

NAMES = ["cat", "dog house", "tall red bus stop", "kite", "grand piano", "tree"]
WEIGHT = 3.0
TERMS = {
    "TPT": (None, None),
    "CTPT": (
        lambda text: -WEIGHT * dispersion(text),
        lambda text: -WEIGHT * plain_tpt.spread(text),
    ),
    "OTPT": (
        lambda text: WEIGHT * orthogonality(text),
        lambda text: WEIGHT * plain_tpt.reflected(text),
    ),
}


def unit(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def model_of(kind: str = "shared", budget_mb: int = 64, term: Any = None, views: int = 16) -> Any:
    """A tuned model on the small random CLIP, with six classes."""
    options = {
        "TRAINER.NAME": "TPT",
        "TRAINER.TPT.PREC": "fp32",
        "TRAINER.TPT.VIEWS": views,
        "TRAINER.TPT.CONFIDENT": 0.25,
        "MODEL.BACKBONE.NAME": "ViT-B/16",
        "MODEL.TEXT_ENCODER": kind,
        "OPTIM.LR": plain_tpt.RATE,
        "OPTIM.WEIGHT_DECAY": plain_tpt.DECAY,
    }
    cfg = resolve(ROOT, {}, {}, options)
    cfg.MODEL.TEXT_BUDGET_MB = budget_mb
    loaded = LoadedCLIP(small_clip("vit"), tokenizer, "small", "random", "", (16, 16))
    return TunedCLIP(cfg, loaded, NAMES, term)


@pytest.mark.parametrize("name", TERMS)
def test_a_batch_is_tuned_as_each_image_alone_by_a_plain_loop(name):
    ours, plain = TERMS[name]
    model = model_of(term=ours)
    views = unit(5, 16, 24)
    start = model.prompt_learner.ctx.detach()
    prompts = tokenizer([f"a photo of a {name}." for name in NAMES])
    scale = model.logit_scale.exp().item()
    contexts, logits = model.tune(views), model(views)
    for image, context, logit in zip(views, contexts, logits, strict=True):
        tuned, expected = plain_tpt.tune(
            small_clip("vit"), prompts, start, image, scale, count=4, term=plain
        )
        assert (context - start).abs().max() > 1e-3
        torch.testing.assert_close(context, tuned, atol=1e-5, rtol=0)
        torch.testing.assert_close(logit, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("budget", [None, 150_000, 400_000])
def test_the_naive_encoder_and_a_small_budget_tune_the_same(budget):
    """The smaller budget holds one image at a time, and no graph of all classes at once."""
    term = TERMS["CTPT"][0]
    views = unit(5, 16, 24)
    model = model_of("shared" if budget else "naive", term=term)
    if budget:
        model.text_encoder.budget = budget
        model.at_once = model.text_encoder.prompts_at_once(model.prompt_learner.layout)
    assert model.at_once == {None: 1, 150_000: 1, 400_000: 3}[budget]
    torch.testing.assert_close(model(views), model_of(term=term)(views), atol=1e-4, rtol=0)


def test_the_least_uncertain_views_are_chosen():
    logits = torch.tensor([[[0.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 9.0]]])
    assert confident_logits(logits, 2).tolist() == [[[0.0, 9.0], [4.0, 0.0]]]


def test_the_entropy_is_that_of_the_mean_prediction_and_survives_certainty():
    logits = torch.randn(3, 4, 5, dtype=torch.float64)
    mean = logits.softmax(-1).mean(1)
    torch.testing.assert_close(marginal_entropy(logits), -(mean * mean.log()).sum(-1))
    certain = torch.zeros(1, 2, 3, requires_grad=True)
    entropy = marginal_entropy(certain + torch.tensor([3e4, 0.0, -3e4]))
    (gradient,) = torch.autograd.grad(entropy.sum(), certain)
    assert entropy.item() == 0
    assert gradient.isfinite().all()


def test_the_closed_form_of_the_orthogonality_is_the_published_reflection():
    text = F.normalize(torch.randn(7, 12, dtype=torch.float64), dim=1).requires_grad_()
    pairs = [(term(text), term) for term in (orthogonality, plain_tpt.reflected)]
    gradients = [torch.autograd.grad(value, text)[0] for value, _ in pairs]
    torch.testing.assert_close(pairs[0][0], pairs[1][0])
    torch.testing.assert_close(*gradients)
    assert orthogonality(torch.eye(5)).item() == 0  # where the reflection divides 0 by 0


def test_an_image_with_a_gradient_that_is_not_finite_keeps_the_context():
    start, gradients = torch.ones(2, 3), torch.ones(3, 2, 3)
    gradients[1, 0, 2] = torch.inf
    stepped = first_step(start, gradients, partial(torch.optim.AdamW, lr=0.1, weight_decay=0.0))
    assert torch.equal(stepped[1], start)
    torch.testing.assert_close(stepped[[0, 2]], torch.full((2, 2, 3), 0.9))


SMALL = ("TRAINER.TPT.VIEWS", "10", "TRAINER.TPT.CTX_INIT", "a photo of a")


def test_without_a_step_it_is_zero_shot_clip(run):
    still = (*SMALL, "OPTIM.LR", "1e-9")
    template = ("DATASET.TEMPLATE", "a photo of a {}.")
    tuned, said = run("tuned", *still, trainer="TPT")
    zero_shot, _ = run("zero-shot", *template, trainer="ZeroshotCLIP")
    np.testing.assert_allclose(tuned, zero_shot, atol=1e-4)
    assert "kept 10 views, seed 1, of 12 images" in said
    moved, _ = run("moved", *SMALL, trainer="TPT")
    assert np.abs(moved - zero_shot).max() > 1e-3


@pytest.mark.parametrize("name", ["CTPT", "OTPT"])
def test_tuning_stays_on_the_device(name, build, monkeypatch):
    """The ``meta`` device has a backward pass without a GPU, but no mixed precision."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **options: nullcontext())
    model = build(name, "TRAINER.TPT.PREC", "fp32", "OPTIM.NAME", "adamw").model.to("meta")
    with torch.no_grad():
        assert model(torch.zeros(3, 64, 32, device="meta")).device.type == "meta"


@pytest.mark.parametrize("precision", ["fp32", "amp", "fp16"])
def test_all_but_the_gradient_reads_nothing_back_from_a_gpu(precision, build, monkeypatch):
    def gradients(context: Tensor, text: Tensor, views: Tensor, *_: Any) -> Tensor:
        assert (text.device.type, text.dtype) == ("cuda", torch.float32)
        return torch.zeros(len(views), *context.shape, device=views.device)

    monkeypatch.setattr("coop_cmp.trainers.tpt.first_gradients", gradients)
    trainer = build("CTPT", "TRAINER.TPT.PREC", precision, "OPTIM.NAME", "adamw")
    mode = FakeTensorMode()
    trainer.device, trainer.model = CUDA, on_fake_gpu(trainer.model, mode)
    with fake_gpu(mode), torch.no_grad():
        logits = trainer.model_inference(torch.zeros(3, 64, 32, device=CUDA))
    assert (logits.device.type, logits.dtype) == ("cuda", torch.float32)


@pytest.mark.parametrize("precision", ["amp", "fp16"])
def test_half_precision_tunes_nearly_the_same(precision, run):
    exact, _ = run("fp32", *SMALL, trainer="CTPT")
    half, _ = run(precision, *SMALL, "TRAINER.TPT.PREC", precision, trainer="CTPT")
    still, _ = run("still", *SMALL, "OPTIM.LR", "1e-9", trainer="CTPT")
    assert 0 < np.abs(half - exact).mean() < np.abs(still - exact).mean() / 3


def test_from_a_trained_context_without_a_step_it_is_coop(run, tmp_path):
    size = ("TRAINER.COOP.N_CTX", "5", "OPTIM.MAX_EPOCH", "2")
    coop, _ = run("coop", *size, trainer="CoOp")
    start = ("--eval-only", f"--model-dir={tmp_path / 'coop'}", "TRAINER.TPT.VIEWS", "10")
    start += ("TRAINER.TPT.CTX_INIT", "", "TRAINER.TPT.N_CTX", "5")
    tuned, _ = run("tuned", *start, "OPTIM.LR", "1e-9", trainer="CTPT")
    np.testing.assert_allclose(tuned, coop, atol=1e-4)
    learned = [read_results(tmp_path / name / "results.json") for name in ("coop", "tuned")]
    assert learned[0]["checkpoint"] == learned[1]["checkpoint"] is not None
    error = run("short", *start, "TRAINER.TPT.N_CTX", "4", trainer="TPT", code=2)
    assert re.search(r"ctx is \[5, 32\], expected \[4, 32\]", error)


def test_a_trained_run_of_another_method_is_refused_as_a_start(run, tmp_path):
    run("kgcoop", "TRAINER.KGCOOP.N_CTX", "4", "OPTIM.MAX_EPOCH", "1", trainer="KgCoOp")
    start = ("--eval-only", f"--model-dir={tmp_path / 'kgcoop'}")
    error = run("tuned", *SMALL, *start, trainer="TPT", code=2)
    assert re.search(r"kgcoop.* is a run of KgCoOp.*starts from a run of CoOp", error)


def test_other_weights_and_methods_need_no_image_tower(run, monkeypatch):
    first, _ = run("first", *SMALL, trainer="CTPT")

    def fail(self: Any, image: Tensor) -> Tensor:
        raise AssertionError("an image was encoded")

    monkeypatch.setattr(PromptedCLIP, "encode_image", fail)
    second, _ = run("second", *SMALL, "TRAINER.TPT.DISPERSION", "0.5", trainer="CTPT")
    third, said = run("third", *SMALL, "OPTIM.LR", "0.01", trainer="OTPT")
    assert "read 10 views" in said
    assert not (first == second).all()
    assert not (second == third).all()


def test_batches_parts_and_the_store_change_nothing_and_the_seed_does(run, monkeypatch):
    once, _ = run("once", *SMALL, trainer="TPT")
    without, _ = run("without", "--no-feature-store", *SMALL, trainer="TPT")
    assert (once == without).all()
    monkeypatch.setattr(loaders, "TEST_IMAGES", 5)
    parts, said = run("parts", *SMALL, "DATALOADER.TEST.BATCH_SIZE", "7", trainer="TPT")
    assert said.count("kept 10 views") == 3
    np.testing.assert_allclose(parts, once, atol=1e-4)
    other, _ = run("other", *SMALL, "SEED", "2", trainer="TPT")
    assert np.abs(other - once).max() > 1e-3


def test_the_first_view_is_the_test_image_and_the_others_are_random():
    def draw(image: Any) -> Tensor:
        return torch.rand(3, 2, 2)

    stack = ManyViews(lambda image: torch.zeros(3, 2, 2), draw, 4)(None)
    assert stack.shape == (4, 3, 2, 2)
    assert (stack[0] == 0).all()
    assert len(stack.flatten(1).unique(dim=0)) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("TRAINER.TPT.VIEWS", "9"), r"CONFIDENT 0\.1 leaves none of TRAINER\.TPT\.VIEWS 9"),
        (("TRAINER.TPT.VIEWS", "1000000000000000000000000000000"), r"VIEWS must be .* 1 to 1024"),
        (("TRAINER.TPT.CONFIDENT", "1.5"), r"TRAINER\.TPT\.CONFIDENT must be a number"),
        (("OPTIM.NAME", "sgd"), r'OPTIM\.NAME must be "adamw" for CTPT, got "sgd"'),
        (("TRAINER.TPT.DISPERSION", "-1"), r"TRAINER\.TPT\.DISPERSION must be .* number >= 0"),
        (("TRAINER.TPT.AUGMIX", "[]"), r"TRAINER\.TPT\.AUGMIX takes one or two values"),
        (("TRAINER.TPT.CTX_INIT", ""), r"no context to start from"),
        (("TRAINER.TPT.PREC", "fp8"), r"TRAINER\.TPT\.PREC must be fp32"),
    ],
)
def test_wrong_settings_are_refused_before_any_image_is_read(options, message, run, monkeypatch):
    monkeypatch.setattr(loaders, "ImageEncoder", None)
    error = run("wrong", *options, trainer="CTPT", code=2)
    assert re.search(message, error), error


def test_prompts_that_do_not_fit_in_the_text_budget_are_refused(monkeypatch):
    monkeypatch.setattr("coop_cmp.trainers.base.activation_budget", lambda device: 1000)
    with pytest.raises(UserError, match=r"6 classes do not fit .* MODEL\.TEXT_BUDGET_MB higher"):
        model_of(budget_mb=0)


def test_views_of_a_loader_that_already_has_them_are_left_alone():
    features = loaders.StoredFeatures(lambda items: torch.zeros(1, 2, 3), [])
    loader = SimpleNamespace(dataset=features)
    assert loaders.ManyViewsLoaders.test_loader(None, loader) is loader  # type: ignore[arg-type]


def test_a_second_weight_is_for_imagenet_and_its_variants():
    def weights(name: str, trainer: Any) -> list[Any]:
        options = {"TRAINER.NAME": trainer.__name__, "DATASET.NAME": name}
        cfg = resolve(ROOT, {}, {"MODEL.BACKBONE.NAME": "ViT-B/16"}, options)
        made = trainer.__new__(trainer)
        made.cfg = cfg
        return [made.chosen(key) for key in ("AUGMIX", "DISPERSION", "ORTHOGONALITY")]

    assert weights("OxfordPets", TPT) == [True, 50.0, 18.0]
    assert weights("ImageNet", TPT) == [False, 20.0, 2.0]
    assert weights("ImageNetSketch", CTPT) == [True, 20.0, 2.0]
