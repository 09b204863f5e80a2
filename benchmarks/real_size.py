"""One training step and one test batch of every method on models of real size.

    python benchmarks/real_size.py [--json FILE] [--threads 2] [--small]

ViT-B/16 and RN50 with random weights, random images and 20 classes, in single precision, with the
settings of configs/trainers. It shows that the methods run, how many values they learn and how long
a step takes; the losses say nothing but that they are finite.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import open_clip
import torch
from common import ROOT, class_names, now, parser_of, random_clip, report
from dassl.engine import TRAINER_REGISTRY

import coop_cmp.runs.evaluator
import coop_cmp.trainers  # noqa: F401
from coop_cmp.clip import LoadedCLIP
from coop_cmp.config.resolve import resolve
from coop_cmp.errors import UserError

CLASSES, BATCH = class_names(20), 4
METHODS = ("CoOp", "CoCoOp", "ProDA", "MaPLe", "KgCoOp", "CLIPFT")


class RandomData:
    """Stands before a trainer in a class's bases: random images instead of files."""

    def build_data_loader(self: Any) -> None:
        size = self.cfg.INPUT.SIZE
        self.batch = {
            "img": torch.randn(BATCH, 3, *size),
            "label": torch.randint(len(CLASSES), (BATCH,)),
        }
        self.dm = SimpleNamespace(dataset=SimpleNamespace(classnames=CLASSES))
        self.lab2cname = dict(enumerate(CLASSES))


def config_of(method: str, backbone: str, image_size: tuple[int, int], device: str) -> Any:
    """The method's settings for a backbone, in single precision."""
    file = ROOT / "configs" / "trainers" / method / "clip.yaml"
    cfg = resolve(ROOT, {"--config-file": str(file)}, {}, {})
    cfg.TRAINER.NAME, cfg.MODEL.BACKBONE.NAME = f"{method}_CMP", backbone
    cfg.TRAINER[method.upper()].PREC = "fp32"
    cfg.INPUT.SIZE, cfg.DEVICE, cfg.SEED = image_size, device, 1
    return cfg


def measure(method: str, backbone: str, small: bool, device: str = "cpu") -> dict[str, Any]:
    """A row of the table."""
    model = random_clip(backbone.replace("/", "-"), small)
    size = model.visual.image_size
    size = (size, size) if isinstance(size, int) else tuple(size)
    clip = LoadedCLIP(model, open_clip.get_tokenizer("ViT-B-16"), backbone, "random", "", size)
    cfg = config_of(method, backbone, size, device)
    if small:
        cfg.TRAINER.MAPLE.PROMPT_DEPTH = 1
    trainer_class = TRAINER_REGISTRY.get(cfg.TRAINER.NAME)
    row: dict[str, Any] = {"method": cfg.TRAINER.NAME, "backbone": backbone}
    with (
        patch("coop_cmp.trainers.base.load_clip", lambda *_: clip),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            trainer = type("Measured", (RandomData, trainer_class), {})(cfg)
        except UserError as error:
            return {**row, "note": str(error).split(":")[0]}
    trainer.epoch, trainer.batch_idx, trainer.num_batches = 0, 0, 1
    trainer.set_model_mode("train")
    start = now()
    losses = {key: float(loss) for key, loss in trainer.forward_backward(trainer.batch).items()}
    middle = now()
    trainer.set_model_mode("eval")
    with torch.no_grad():
        trainer.model.fixed_text = trainer.model.classifier()
        logits = trainer.model_inference(trainer.batch["img"].to(trainer.device))
    end = now()
    if not (all(map(math.isfinite, losses.values())) and torch.isfinite(logits).all()):
        raise FloatingPointError(f"{method} on {backbone}: {losses}")
    return {
        **row,
        "learned values": f"{trainer.trainable:,}",
        "loss": losses["loss"],
        "penalty": losses["loss_cmp"],
        "step, s": middle - start,
        "test, s": end - middle,
    }


def main(args: argparse.Namespace) -> None:
    """Measure every method on both backbones."""
    torch.set_num_threads(args.threads)
    sizes = args.small, args.device
    rows = [measure(m, b, *sizes) for b in ("ViT-B/16", "RN50") for m in METHODS]
    report(args, rows, classes=len(CLASSES), images_per_batch=BATCH)


if __name__ == "__main__":
    main(parser_of(__doc__ or "").parse_args())
