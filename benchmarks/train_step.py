"""One training step: as the CoOp codebase does it, with the shared prefix, and on stored features.

    python benchmarks/train_step.py [--json FILE] [--threads 2] [--rounds 3]

Random weights of ViT-B/16 and RN50, random images. A step encodes the images and the prompts,
and takes the gradient of cross-entropy in the context. The CoOp codebase runs all 77 tokens of
every class, one pass per image where prompts depend on the image. Every row is measured in a
process of its own; memory is what the step adds to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from common import (
    alone,
    class_names,
    count_flops,
    in_turns,
    parser_of,
    peak_bytes,
    random_clip,
    report,
)
from torch import Tensor, nn

from coop_cmp.clip import TextEncoder, context_layout

# Way: text encoder, images encoded in the step.
WAYS = {
    "CoOp codebase": ("naive", True),
    "shared prefix": ("shared", True),
    "shared prefix, stored features": ("shared", False),
}
# Method: images of a batch, classes, learned vectors, prompts of each image's own.
METHODS = {"CoOp": (32, 100, 16, False), "CoCoOp": (4, 50, 4, True)}


def make_step(model: Any, method: str, way: str) -> tuple[Callable[[], Tensor], int]:
    """A training step that returns its loss, and the number of its text tokens."""
    batch, classes, n_ctx, per_image = METHODS[method]
    kind, encodes_images = WAYS[way]
    layout = context_layout(class_names(classes), open_clip.get_tokenizer("ViT-B-16"), n_ctx=n_ctx)
    encoder = TextEncoder(model, kind)  # type: ignore[arg-type]
    size = model.visual.image_size
    size = size[0] if isinstance(size, tuple) else size
    device = model.text_projection.device
    torch.manual_seed(1)
    context = nn.Parameter((0.02 * torch.randn(n_ctx, encoder.width)).to(device))
    meta_net = nn.Linear(model.text_projection.shape[1], encoder.width).to(device)
    images = torch.randn(batch, 3, size, size).to(device)
    labels = torch.randint(classes, (batch,)).to(device)

    def encode_images() -> Tensor:
        with torch.no_grad():
            return F.normalize(model.visual(images), dim=-1)

    stored = None if encodes_images else encode_images()

    def step() -> Tensor:
        context.grad = meta_net.weight.grad = meta_net.bias.grad = None
        features = encode_images() if stored is None else stored
        contexts = context + meta_net(features)[:, None] if per_image else context
        text = F.normalize(encoder(layout, contexts), dim=-1)  # [C, E] or [B, C, E]
        products = (text @ features[..., None])[..., 0] if per_image else features @ text.t()
        loss = F.cross_entropy(100 * products, labels)
        loss.backward()
        return loss.detach()

    of_classes = layout.n_tokens if kind == "shared" else classes * len(model.positional_embedding)
    return step, of_classes * (batch if per_image else 1)


def measure(
    backbone: str, method: str, way: str, rounds: int, small: bool, device: str = "cpu"
) -> dict[str, Any]:
    """Measure one way of one method in this process."""
    step, tokens = make_step(random_clip(backbone, small).to(device), method, way)
    peak = peak_bytes(step)  # of the first step: what it frees may stay with the process
    return {
        "tokens": tokens,
        "bytes": peak,
        "flops": count_flops(step),
        "seconds": in_turns({"step": step}, rounds)["step"],
        "loss": step().item(),
    }


def main() -> None:
    parser = parser_of(__doc__ or "", rounds=3)
    args = parser.parse_args()
    options = (args.rounds, args.small, args.device)
    rows = []
    for backbone in ("ViT-B-16", "RN50"):
        for method in METHODS:
            found = {way: alone(args, measure, backbone, method, way, *options) for way in WAYS}
            first = found["CoOp codebase"]
            rows += [
                {
                    "backbone": backbone,
                    "method": method,
                    "step": way,
                    "text tokens": run["tokens"],
                    "GFLOP": run["flops"] / 1e9,
                    "seconds": run["seconds"],
                    "MB": run["bytes"] / 1e6,
                    "faster": first["seconds"] / run["seconds"],
                    "loss differs": abs(run["loss"] - first["loss"]),
                }
                for way, run in found.items()
            ]
    report(args, rows)


if __name__ == "__main__":
    main()
