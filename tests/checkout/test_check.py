"""``python -m coop_cmp --check`` in a checkout with trainers of every fate."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from coop_cmp.checkout.fakes import random_weights
from tests.checkouts import run

TRAIN = """
import os
import torch
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase
from dassl.engine import TRAINER_REGISTRY, TrainerX
from dassl.optim import build_lr_scheduler, build_optimizer
from torch import nn
from torch.nn import functional as F
import weights


def setup_cfg(args):
    from dassl.config import get_cfg_default
    from yacs.config import CfgNode

    cfg = get_cfg_default()
    cfg.TRAINER.FINE = CfgNode({"WIDTH": 0, "PREC": "fp16"})
    if args.config_file:
        cfg.merge_from_file(args.config_file)
    return cfg


@DATASET_REGISTRY.register()
class Missing(DatasetBase):
    def __init__(self, cfg):
        raise FileNotFoundError("no data here")


@TRAINER_REGISTRY.register()
class Fine(TrainerX):
    def build_model(self):
        state = torch.load(weights._download("url"), map_location="cpu", mmap=True)
        assert self.cfg.TRAINER.FINE.WIDTH == 512 and self.cfg.TRAINER.FINE.PREC == "fp32"
        projection = state["text_projection"].float()[:, : self.num_classes].cuda().half()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 512), nn.Linear(512, 2))
        self.model[2].weight.data = projection.t().contiguous()
        self.optim = build_optimizer(self.model, self.cfg.OPTIM)
        self.sched = build_lr_scheduler(self.optim, self.cfg.OPTIM)
        self.register_model("model", self.model, self.optim, self.sched)

    def loss(self, logits, labels):
        return F.cross_entropy(logits, labels)

    def forward_backward(self, batch):
        loss = self.loss(self.model(batch["img"]), batch["label"])
        self.model_backward_and_update(loss)
        return {"loss": loss.item()}

    def test(self, split=None):
        open(f"{self.cfg.OUTPUT_DIR}/curve.txt", "w").close()
        return super().test(split)


@TRAINER_REGISTRY.register()
class Broken(Fine):
    def build_model(self):
        raise OSError("cannot find\\nmy file")


@TRAINER_REGISTRY.register()
class Unfit(Fine):
    pass


@TRAINER_REGISTRY.register()
class Lossless(Fine):
    def loss(self, logits, labels):
        return logits.square().mean()


@TRAINER_REGISTRY.register()
class Restless(Fine):
    def loss(self, logits, labels):
        return F.cross_entropy(logits, labels) * (1 + int.from_bytes(os.urandom(4), "big") / 2**32)


@TRAINER_REGISTRY.register()
class Untested(Fine):
    def test(self, split=None):
        raise KeyError("zeroshot features")
"""
WEIGHTS = """
_MODELS = {"ViT-B/16": "url"}


def _download(url, root=None):
    raise ConnectionError(url)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("check")
    (root / "train.py").write_text(TRAIN)
    (root / "weights.py").write_text(WEIGHTS)
    for trainer in ("Fine", "Lossless", "Restless", "untested"):
        folder = root / "configs" / "trainers" / trainer
        folder.mkdir(parents=True)
        (folder / "rn50.yaml").write_text("TRAINER:\n  FINE:\n    WIDTH: 1\n")
        (folder / "vit_b16_ep50.yaml").write_text("TRAINER:\n  FINE:\n    WIDTH: 512\n")
    unfit = root / "configs" / "trainers" / "Unfit"
    unfit.mkdir()
    (unfit / "vit_b16.yaml").write_text("TRAINER:\n  FINE:\n    WIDTH: false\n")
    return root


def test_each_trainer_works_or_the_reason_and_whose_it_is_are_told(checkout):
    before = sorted(checkout.rglob("*"))
    shown = run(checkout, "--check")
    assert shown.returncode == 0, shown.stderr
    lines = [line for line in shown.stdout.splitlines() if not line.startswith((" ", "coop_cmp"))]
    rows = dict(line.split(": ", 1) for line in lines)
    assert list(rows) == ["Fine", "Broken", "Unfit", "Lossless", "Restless", "Untested"]
    works, own = "works; lambda 0 is bit-identical", "the checkout's: {} itself fails in"
    assert rows["Fine"] == works
    missing = "building: OSError: cannot find my file (train.py, line "
    assert rows["Broken"].startswith(f"{own.format('Broken')} {missing}")
    assert rows["Unfit"].startswith(f"{own.format('Unfit')} building: AssertionError")  # no WIDTH
    assert rows["Lossless"].startswith("the twin fails in training: ")
    assert rows["Restless"].endswith("was not compared, Restless itself differs between two runs")
    assert rows["Untested"].startswith(f"{works}; {own.format('Untested')} the test: KeyError")
    assert "  --fast: nothing to do: the trainer keeps no text encoder" in shown.stdout
    left = [f for f in sorted(checkout.rglob("*")) if "__pycache__" not in f.parts]
    assert left == before


def test_a_twin_with_another_term_can_be_tried(checkout):
    shown = run(checkout, "--check", "--trainer", "Fine_Focal")
    assert "Fine: works with the focal loss\n" in shown.stdout


def test_an_unknown_trainer_is_refused(checkout):
    shown = run(checkout, "--check", "--trainer", "Fin_CMP")
    assert shown.returncode == 2
    assert shown.stderr.strip().endswith('no trainer "Fin" that trains; did you mean "Fine"?')


def test_the_random_weights_have_the_layout_of_openais_package():
    weights = random_weights(text_layers=3)
    layers = {key.split(".")[2] for key in weights if key.startswith("transformer.resblocks.")}
    assert layers == {"0", "1", "2"}
    assert weights["transformer.resblocks.0.attn.in_proj_weight"].shape == (1536, 512)
    assert weights["visual.conv1.weight"].shape == (768, 3, 16, 16)
    assert all(torch.isfinite(value).all() for value in weights.values())
