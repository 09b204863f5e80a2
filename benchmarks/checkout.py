"""A checkout's own training step, and the same with ``--fast``: time, losses and gradients.

    cd CHECKOUT && python .../benchmarks/checkout.py --trainer CoOp [--classes 100] [--steps 10]
    [--lr 0.5] [--image-layers 1]

The text tower of ViT-B/16 with random weights, as the checkout's own code builds it; the image
tower is tiny, so that a step is its text side. Two trainers with the same seed make their steps in
turns, in one process; steps in which ``--fast`` goes both ways are not the best ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import open_clip
import torch
from common import class_names, now, parser_of, prepare, report
from dassl import engine
from dassl.utils import set_random_seed

from coop_cmp.checkout.check import Trial, look_alike
from coop_cmp.checkout.fakes import stand_at_the_edges, without_gpu, write_data
from coop_cmp.checkout.fast import accelerate, distance
from coop_cmp.checkout.plugin import wrap
from coop_cmp.checkout.runner import found_script, run_script

WAYS = ("own", "fast")


class Done(Exception):
    """The measurement is complete: stop the script."""


def measured(
    build: Callable[[Any], Any], steps: int, rate: float | None, row: dict[str, Any]
) -> Callable[[Any], Any]:
    """Make a ``build_trainer`` that measures two trainers instead of returning one.

    Args:
        build: The engine's.
        steps: Of each trainer.
        rate: The learning rate, unless it is that of the settings.
        row: Takes the best seconds of a step each way and the largest differences of their losses
            and of their gradients, as a share of the largest entry.
    """

    def build_trainer(cfg: Any) -> Any:
        cfg.defrost()
        cfg.OPTIM.LR, cfg.OPTIM.WARMUP_EPOCH = rate or cfg.OPTIM.LR, 0
        cfg.DATALOADER.TRAIN_X.BATCH_SIZE = 8
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        losses: dict[str, list[float]] = {way: [] for way in WAYS}
        built: dict[str, Any] = {}
        for way in WAYS:
            set_random_seed(1)
            built[way] = build(cfg.clone())
            built[way].set_model_mode("train")
            built[way].num_batches, built[way].batch_idx = steps + 1, 0
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            accelerate(built["fast"])
            batch = next(iter(built["own"].train_loader_x))
            gradients = 0.0
            for _ in range(steps):
                for way in WAYS:
                    start = now()
                    losses[way].append(float(built[way].forward_backward(batch)["loss"]))
                    seconds[way].append(now() - start)
                pairs = zip(*map(learned, built.values()), strict=True)
                gradients = max(gradients, *(distance(b.grad, a.grad) for a, b in pairs))
        own, fast = (min(seconds[way][1:]) for way in WAYS)
        row.update(
            {
                "own s": own,
                "fast s": fast,
                "times faster": own / fast,
                "steps": steps,
                "rate": cfg.OPTIM.LR,
                "loss, first": losses["own"][0],
                "last": losses["own"][-1],
                "losses differ": max(abs(a - b) for a, b in zip(*losses.values(), strict=True)),
                "gradients differ": gradients,
                "--fast": said.getvalue().split("coop_cmp --fast: the text encoder ")[-1].strip(),
            }
        )
        raise Done

    return build_trainer


def learned(trainer: Any) -> list[torch.Tensor]:
    """Return all parameters of a trainer's models that have a gradient."""
    models = trainer._models.values()
    return [p for model in models for p in model.parameters() if p.grad is not None]


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--script", default="train.py", help="the training script (%(default)s)")
    parser.add_argument("--trainer", default="CoOp")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--image-layers", type=int, default=1, help="MMA needs all 12")
    parser.add_argument("--lr", type=float, help="the learning rate (default: the settings')")
    args = parser.parse_args()
    prepare(args)
    script = found_script(args.script)
    row: dict[str, Any] = {"trainer": args.trainer, "classes": args.classes}
    config = open_clip.get_model_config

    def shallow(name: str) -> Any:
        vision = {**(found := config(name))["vision_cfg"], "layers": args.image_layers}
        return {**found, "vision_cfg": vision}

    shallow_images = mock.patch("open_clip.get_model_config", shallow)
    with tempfile.TemporaryDirectory() as name, without_gpu(), shallow_images:
        folder = Path(name)
        look_alike(folder / "here")
        write_data(folder / "data", class_names(args.classes))
        os.chdir(folder / "here")
        given = ["--trainer", args.trainer]
        wrap(engine, "build_trainer", partial(measured, steps=args.steps, rate=args.lr, row=row))
        stand_at_the_edges(Trial(script, folder, [], args.trainer))
        sys.argv = [str(script), *given]
        with contextlib.suppress(Done), contextlib.redirect_stdout(sys.stderr):
            run_script(script)
        os.chdir(script.parent)
    report(args, [row])
