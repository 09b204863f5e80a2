"""Trainers on small random models and random images, without any files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dassl.config import get_cfg_default
from dassl.engine import TRAINER_REGISTRY, SimpleTrainer

import coop_cmp.runs.evaluator
import coop_cmp.trainers  # noqa: F401
from coop_cmp.config.resolve import extend_cfg
from coop_cmp.trainers.terms import register_if_term
from tests.small_clip import RESNET, described, register, vit

CLASSES = ["cat", "golden_retriever", "kite (bird of prey)", "tench", "2012 BMW M3 coupe"]
METHODS = ["CoOp", "CoCoOp", "ProDA", "MaPLe", "KgCoOp", "CLIPFT"]
NODES = [name.upper() for name in METHODS]
TIMM = {"timm_model_name": "test_convnext", "timm_model_pretrained": False, "timm_pool": ""}
MODELS = {
    # As many layers as real CLIP models, and the image tokens of ViT-B/16.
    "DeepCLIP": described(vit(224, 16, 48, 12, 24), layers=12),
    "TinyResNet": described(RESNET),
    "TinyTimm": described({"image_size": 32, "timm_proj": "linear", **TIMM}),
}


@pytest.fixture(scope="session")
def models(tiny_weights: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Register DeepCLIP, TinyResNet and TinyTimm with random weights, beside TinyCLIP."""
    folder = tmp_path_factory.mktemp("more_models")
    for name, config in MODELS.items():
        register(folder, name, config, seed=1)


def random_batches(count: int, size: int, classes: int, pixels: int) -> list[dict[str, Any]]:
    """Batches of random images [size, 3, pixels, pixels] with random labels."""
    generator = torch.Generator().manual_seed(5)
    return [
        {
            "img": torch.randn(size, 3, pixels, pixels, generator=generator),
            "label": torch.randint(classes, (size,), generator=generator),
        }
        for _ in range(count)
    ]


@pytest.fixture
def build(models: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Make a trainer: ``build("CoOp_CMP", "TRAINER.CMP.LAMBDA", 0.1, classnames=[...])``.

    Its data are random; everything is in single precision unless the options say otherwise.
    """

    def load_data(trainer: Any) -> None:
        names, pixels = trainer.classnames, trainer.cfg.INPUT.SIZE[0]
        name = trainer.cfg.DATASET.NAME
        dataset = SimpleNamespace(classnames=names, train_x=[], test=[], name=name)
        trainer.dm = SimpleNamespace(dataset=dataset)
        trainer.train_loader_x = random_batches(3, 6, len(names), pixels)
        trainer.val_loader, trainer.test_loader = None, random_batches(2, 8, len(names), pixels)
        trainer.num_classes, trainer.lab2cname = len(names), dict(enumerate(names))

    monkeypatch.setattr(SimpleTrainer, "build_data_loader", load_data)

    def make(
        name: str, *options: Any, classnames: list[str] | None = None, model: str = "TinyCLIP"
    ) -> Any:
        cfg = get_cfg_default()
        extend_cfg(cfg)
        cfg.TRAINER.NAME, cfg.MODEL.BACKBONE.NAME, cfg.SEED = name, model, 1
        cfg.INPUT.SIZE = (224, 224) if model == "DeepCLIP" else (32, 32)
        cfg.OPTIM.NAME, cfg.OPTIM.LR, cfg.OPTIM.MAX_EPOCH = "sgd", 0.01, 1
        cfg.TRAINER.MAPLE.PROMPT_DEPTH = 9 if model == "DeepCLIP" else 2
        cfg.TRAINER.PRODA.N_CTX, cfg.TRAINER.PRODA.N_PROMPT = 4, 8
        for node in NODES:
            cfg.TRAINER[node].PREC = "fp32"
        cfg.merge_from_list(list(options))
        register_if_term(name)
        trainer_class = TRAINER_REGISTRY.get(name)
        monkeypatch.setattr(trainer_class, "classnames", classnames or CLASSES, raising=False)
        torch.manual_seed(3)
        return trainer_class(cfg)

    return make


def steps(trainer: Any, count: int = 3) -> list[dict[str, float]]:
    """Train for some steps; what each of them reports."""
    trainer.num_batches, trainer.epoch = len(trainer.train_loader_x), 0
    trainer.set_model_mode("train")
    reports = []
    for trainer.batch_idx in range(count):
        report = trainer.forward_backward(trainer.train_loader_x[trainer.batch_idx])
        reports.append({name: float(value) for name, value in report.items()})
    return reports


def loss_and_gradients(trainer: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of the first batch before any step, and its gradients by parameter name."""
    batch = trainer.train_loader_x[0]
    features = trainer.model.encode_image(batch["img"])
    losses = trainer.model.losses(features, batch["label"]).losses
    loss = torch.stack(list(losses.values())).sum()
    named = {k: p for k, p in trainer.learner.named_parameters() if p.requires_grad}
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return loss, {k: g for k, g in zip(named, gradients, strict=True) if g is not None}


def assert_loss_and_gradients(trainer: Any, expected: torch.Tensor) -> None:
    """Compare the loss of the first batch, and all of its gradients, with what is expected."""
    loss, gradients = loss_and_gradients(trainer)
    torch.testing.assert_close(loss, expected.float())
    weights = dict(trainer.learner.named_parameters())
    plain = torch.autograd.grad(expected, list(weights.values()))
    for name, gradient in zip(weights, plain, strict=True):
        rounding = 1e-6 * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=rounding, msg=name)
