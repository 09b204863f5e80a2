"""Test-time prompt tuning (C-TPT): images in batches against one image at a time.

    python benchmarks/tuning.py [--json FILE] [--threads 2] [--rounds 1] [--classes 100]
        [--images 32]

The text tower of ViT-B/16 with random weights, features of 64 random views for each image.
``one image`` is what the published code does: all 77 tokens of every class forward and backward, a
step of AdamW, all tokens forward again. ``naive encoder`` and ``in batches`` are the trainer's way,
which encodes the common start once. Every row is measured in a process of its own; memory is what
the pass adds to it. Image features are given: the store keeps them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from common import (
    class_names,
    in_turns,
    parser_of,
    passed_on,
    peak_bytes,
    random_clip,
    report,
    run_alone,
)
from torch import Tensor

from coop_cmp.clip import LoadedCLIP
from coop_cmp.config.resolve import resolve
from coop_cmp.trainers.tpt import TunedCLIP, confident_logits, dispersion, marginal_entropy

WAYS = ("one image", "naive encoder", "in batches")
WEIGHT = 50.0


def tuned_clip(way: str, classes: int, small: bool, device: str) -> TunedCLIP:
    """The trainer's model for a way to encode text."""
    options = {
        "DEVICE": device,
        "TRAINER.NAME": "CTPT",
        "TRAINER.TPT.PREC": "fp32",
        "MODEL.BACKBONE.NAME": "ViT-B/16",
        "MODEL.TEXT_ENCODER": "shared" if way == "in batches" else "naive",
    }
    cfg = resolve(Path(__file__).parents[1], {}, {}, options)
    model = random_clip("ViT-B-16", small, image_tower=False)
    clip = LoadedCLIP(model, open_clip.get_tokenizer("ViT-B-16"), "ViT-B-16", "", "", (224, 224))
    names = class_names(classes)
    tuned = TunedCLIP(cfg, clip, names, lambda text: -WEIGHT * dispersion(text))
    return tuned.to(device)


def one_by_one(model: TunedCLIP, views: Tensor) -> Tensor:
    """Logits [B, C] with a graph, a step and two passes for each image, as published."""
    logits = []
    for image in views:
        context = torch.nn.Parameter(model.prompt_learner.ctx.detach().clone())
        optimizer = model.make_optimizer([context])
        with torch.enable_grad():
            text = model.encode(context)
            chosen = confident_logits(model.similarity(image, text)[None], model.confident)
            loss = marginal_entropy(chosen)[0] - WEIGHT * dispersion(text)
        loss.backward()
        optimizer.step()
        logits.append(model.similarity(image[:1], model.encode(context))[0])
    return torch.stack(logits)


def make_pass(
    way: str, classes: int, images: int, small: bool, device: str = "cpu"
) -> Callable[[], Tensor]:
    """A pass over some images that returns their logits."""
    model = tuned_clip(way, classes, small, device)
    generator = torch.Generator().manual_seed(1)
    size = model.text_encoder.clip.text_projection.shape[1]
    views = F.normalize(torch.randn(images, 64, size, generator=generator), dim=-1).to(device)

    @torch.no_grad()
    def run() -> Tensor:
        if way == "one image":
            return one_by_one(model, views)
        model.classifier()  # forget the common start, so that every round pays for it
        return model(views)

    return run


def measure(
    way: str, file: str, classes: int, images: int, rounds: int, small: bool, device: str
) -> dict[str, Any]:
    """Measure one way in this process, and keep its logits in a file."""
    run = make_pass(way, classes, images, small, device)
    peak = peak_bytes(lambda: torch.save(run().cpu(), file))
    seconds = in_turns({"pass": run}, rounds)["pass"]
    return {"seconds": seconds / images, "bytes": peak}


def main() -> None:
    parser = parser_of(__doc__ or "", rounds=1)
    parser.add_argument("--classes", type=int, default=100, help="number of classes (default 100)")
    parser.add_argument("--images", type=int, default=32, help="images of a batch (default 32)")
    parser.add_argument("--alone", nargs=2, metavar=("WAY", "FILE"), help="one measurement")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.alone:
        way, file = args.alone
        sizes = args.classes, args.images, args.rounds
        found = measure(way, file, *sizes, args.small, args.device)
        print(json.dumps(found))
        return
    rows: list[dict[str, Any]] = []
    logits: list[Tensor] = []
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            file = str(Path(folder, "logits.pt"))
            images = args.images if way == "in batches" else 1
            counts = ["--classes", str(args.classes), "--images", str(images)]
            found = run_alone(__file__, ["--alone", way, file, *counts, *passed_on(args)])
            logits.append(torch.load(file, weights_only=True)[0])
            rows.append(
                {
                    "tuning": way,
                    "images at once": images,
                    "seconds per image": found["seconds"],
                    "MB": found["bytes"] / 1e6,
                    "faster": rows[0]["seconds per image"] / found["seconds"] if rows else None,
                    "logits differ": (logits[-1] - logits[0]).abs().max().item(),
                }
            )
    report(args, rows, classes=args.classes)


if __name__ == "__main__":
    main()
