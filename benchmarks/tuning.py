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

from collections.abc import Callable

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from common import (
    ROOT,
    alone,
    class_names,
    in_turns,
    parser_of,
    peak_bytes,
    random_clip,
    report,
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
    cfg = resolve(ROOT, {}, {}, options)
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
    way: str, classes: int, images: int, rounds: int, small: bool, device: str
) -> tuple[float, int, np.ndarray]:
    """Measure one way in this process: seconds of an image, bytes, logits of the first image."""
    run = make_pass(way, classes, images, small, device)
    found: list[np.ndarray] = []
    peak = peak_bytes(lambda: found.append(run()[0].numpy(force=True)))
    return in_turns({"pass": run}, rounds)["pass"] / images, peak, found[0]


def main() -> None:
    parser = parser_of(__doc__ or "", rounds=1)
    parser.add_argument("--classes", type=int, default=100, help="number of classes (default 100)")
    parser.add_argument("--images", type=int, default=32, help="images of a batch (default 32)")
    args = parser.parse_args()
    options = (args.rounds, args.small, args.device)
    counts = {way: args.images if way == "in batches" else 1 for way in WAYS}
    found = [alone(args, measure, way, args.classes, n, *options) for way, n in counts.items()]
    slowest, _, plain = found[0]
    rows = [
        {
            "tuning": way,
            "images at once": counts[way],
            "seconds per image": seconds,
            "MB": peak / 1e6,
            "faster": slowest / seconds if way != WAYS[0] else None,
            "logits differ": float(np.abs(logits - plain).max()),
        }
        for way, (seconds, peak, logits) in zip(WAYS, found, strict=True)
    ]
    report(args, rows, classes=args.classes)


if __name__ == "__main__":
    main()
