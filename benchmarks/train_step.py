"""One training step: as the CoOp codebase does it, with the shared prefix, and on cached views.

    python benchmarks/train_step.py [--json FILE] [--threads 2] [--rounds 3]

Random weights of ViT-B/16 and RN50, random images. A step encodes the images and the prompts,
and takes the gradient of cross-entropy in the context. The ways of a method are timed in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from common import class_names, count_flops, in_turns, parser_of, random_clip, report
from torch import Tensor, nn

from coop_cmp.clip import TextEncoder, context_layout

WAYS = ("CoOp codebase", "shared prefix", "shared prefix, cached views")
# Method: images of a batch, classes, learned vectors, prompts of each image's own.
METHODS = {"CoOp": (32, 100, 16, False), "CoCoOp": (4, 50, 4, True)}


def make_steps(model: Any, method: str) -> dict[str, Callable[[], Tensor]]:
    """A training step for each way; all return the same loss."""
    batch, classes, n_ctx, per_image = METHODS[method]
    layout = context_layout(class_names(classes), open_clip.get_tokenizer("ViT-B-16"), n_ctx=n_ctx)
    encoders = {kind: TextEncoder(model, kind) for kind in ("naive", "shared")}  # type: ignore[arg-type]
    width, size = encoders["shared"].width, model.visual.image_size
    size = size[0] if isinstance(size, tuple) else size
    torch.manual_seed(1)
    context = nn.Parameter(0.02 * torch.randn(n_ctx, width))
    meta_net = nn.Linear(model.text_projection.shape[1], width)
    images, labels = torch.randn(batch, 3, size, size), torch.randint(classes, (batch,))

    def encode_images() -> Tensor:
        with torch.no_grad():
            return F.normalize(model.visual(images), dim=-1)

    stored = encode_images()

    def loss(kind: str, features: Tensor) -> Tensor:
        encode = encoders[kind]
        contexts = context + meta_net(features)[:, None] if per_image else context
        if per_image and kind == "naive":
            text = torch.stack([encode(layout, one) for one in contexts])
        else:
            text = encode(layout, contexts)
        text = F.normalize(text, dim=-1)  # [C, E] or [B, C, E]
        products = (text @ features[..., None])[..., 0] if per_image else features @ text.t()
        return F.cross_entropy(100 * products, labels)

    def step(kind: str, features: Callable[[], Tensor]) -> Tensor:
        context.grad = meta_net.weight.grad = meta_net.bias.grad = None
        value = loss(kind, features())
        value.backward()
        return value.detach()

    return {
        WAYS[0]: lambda: step("naive", encode_images),
        WAYS[1]: lambda: step("shared", encode_images),
        WAYS[2]: lambda: step("shared", lambda: stored),
    }


def main() -> None:
    args = parser_of(__doc__ or "").parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    for name in ("ViT-B-16", "RN50"):
        model = random_clip(name, args.small)
        for method in METHODS:
            steps = make_steps(model, method)
            losses = {way: step().item() for way, step in steps.items()}
            seconds = in_turns(steps, args.rounds)
            rows += [
                {
                    "backbone": name,
                    "method": method,
                    "step": way,
                    "GFLOP": count_flops(step) / 1e9,
                    "seconds": seconds[way],
                    "faster": seconds[WAYS[0]] / seconds[way],
                    "loss differs": abs(losses[way] - losses[WAYS[0]]),
                }
                for way, step in steps.items()
            ]
    report(args, rows)


if __name__ == "__main__":
    main()
