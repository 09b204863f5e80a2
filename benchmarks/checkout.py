"""A checkout's own training step, and the same with ``--fast``: time and losses.

    cd CHECKOUT && python .../benchmarks/checkout.py --trainer CoOp [--classes 100] [--steps 10]
    [--lr 0.5]

The text tower of ViT-B/16 with random weights, as the checkout's own code builds it; the image
tower is tiny, so that a step is its text side. Two trainers with the same seed make their steps in
turns, in one process; the first step, in which ``--fast`` goes both ways, is not timed.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import torch
from common import class_names, now, parser_of, report
from dassl.engine import build_trainer
from dassl.utils import set_random_seed

from coop_cmp.checkout.check import dry_run
from coop_cmp.checkout.fast import accelerate
from coop_cmp.checkout.plugin import prepare

WAYS = ("own", "fast")
OPTIONS = ["DATALOADER.TRAIN_X.BATCH_SIZE", "8", "OPTIM.WARMUP_EPOCH", "0"]


def measure(
    script: Path, trainer: str, classes: int, steps: int, layers: int, options: list[str]
) -> dict[str, Any]:
    """Best seconds of a step each way, and the largest difference of their losses."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    losses: dict[str, list[float]] = {way: [] for way in WAYS}
    built: dict[str, Any] = {}
    said = io.StringIO()
    with (
        dry_run(script, options, class_names(classes), layers) as (_, config),
        contextlib.redirect_stdout(said),
    ):
        for way in WAYS:
            set_random_seed(1)
            built[way] = build_trainer(config(trainer))
            built[way].set_model_mode("train")
            built[way].num_batches, built[way].batch_idx = steps + 1, 0
        accelerate(built["fast"])
        batch = next(iter(built["own"].train_loader_x))
        for _ in range(steps):
            for way in WAYS:
                start = now()
                losses[way].append(float(built[way].forward_backward(batch)["loss"]))
                seconds[way].append(now() - start)
    own, fast = (min(seconds[way][1:]) for way in WAYS)
    differences = [abs(a - b) for a, b in zip(*losses.values(), strict=True)]
    return {
        "trainer": trainer,
        "classes": classes,
        "own s": own,
        "fast s": fast,
        "times faster": own / fast,
        "steps": steps,
        "rate": built["own"].cfg.OPTIM.LR,
        "loss, first": losses["own"][0],
        "last": losses["own"][-1],
        "losses differ": max(differences),
        "--fast": said.getvalue().split("coop_cmp --fast: the text encoder ")[-1].splitlines()[0],
    }


if __name__ == "__main__":
    parser = parser_of(__doc__)
    parser.add_argument("--script", default="train.py", help="the training script (%(default)s)")
    parser.add_argument("--trainer", nargs="+", default=["CoOp"])
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", help="the learning rate (default: that of the trainer's own file)")
    args = parser.parse_args()
    if torch.device(args.device).type not in ("cpu", "cuda"):
        parser.error(f"--device {args.device}: code of the CoOp family knows cpu and cuda")
    torch.set_num_threads(args.threads)
    script = Path(args.script).resolve()
    sys.path.insert(0, str(script.parent))
    prepare()
    layers = 9 if args.small else 12
    options = OPTIONS + (["OPTIM.LR", args.lr] if args.lr else [])
    options += ["USE_CUDA", str(args.device != "cpu")]
    sizes = args.classes, args.steps, layers
    rows = [measure(script, name, *sizes, options) for name in args.trainer]
    report(args, rows)
