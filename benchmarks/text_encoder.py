"""The text encoder against the naive pass: time, tokens, arithmetic, memory and differences.

    python benchmarks/text_encoder.py [--page docs/performance.md] [--rounds 3] [--case NAME ...]

The text tower of ViT-B/16, or of the model in a case's name, with random weights. ``naive`` is what
the CoOp codebase does: all tokens of every class through every layer, one pass per image where
prompts depend on the image.
Every row is measured in a process of its own; memory is what the pass adds to it. The matrix rate
is that of one large matrix product, measured there as well: no encoder can be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from common import (
    alone,
    class_names,
    count_flops,
    in_turns,
    matrix_rate,
    parser_of,
    peak_bytes,
    random_clip,
    report,
)
from torch import Tensor

from coop_cmp.clip import TextEncoder, context_layout

WAYS = ("naive", "shared")


@dataclass(frozen=True)
class Case:
    """Prompts of a method.

    Args:
        classes: Number of classes.
        n_ctx: Learned vectors of a prompt.
        groups: Prompts per class; 0 for a context that all share.
        position: Place of the class name.
        own: Every class has a context of its own.
        depth: Layers with learned vectors.
        gradients: Forward and backward, or forward alone.
        ways: What can be measured.
    """

    classes: int
    n_ctx: int = 16
    groups: int = 0
    position: Any = "end"
    own: bool = False
    depth: int = 1
    gradients: bool = True
    ways: tuple[str, ...] = WAYS
    model: str = "ViT-B-16"


CASES = {
    "CoOp": Case(100),
    "CoOp, context per class": Case(100, own=True),
    "CoOp, name in the middle": Case(100, position="middle"),
    "CoCoOp, 4 images, 50 classes": Case(50, n_ctx=4, groups=4),
    "ProDA, 4 prompts, 50 classes": Case(50, groups=4),
    "MaPLe, 9 layers": Case(100, n_ctx=2, depth=9),
    "CoOp, 1,000 classes, forward": Case(1000, gradients=False),
    "CoOp, EVA02-B-16": Case(100, model="EVA02-B-16"),
    # Its tokens see later ones: every token of all 64 is computed, in both ways.
    "CoOp, ViT-B-16-SigLIP": Case(100, model="ViT-B-16-SigLIP"),
    # The naive pass would keep about 40 GB of activations.
    "CoOp, 1,000 classes": Case(1000, ways=("shared",)),
}


def make_pass(
    case: Case, way: str, small: bool, device: str = "cpu"
) -> tuple[Callable[[], list[Tensor]], str, int]:
    """A pass that returns normalised features and gradients, its way and number of tokens."""
    model = random_clip(case.model, small, image_tower=False).to(device)
    encoder = TextEncoder(model, way)  # type: ignore[arg-type]
    length = encoder.tower.length or 0
    tokenizer = open_clip.SimpleTokenizer(context_length=length)
    names = class_names(case.classes)
    layout = context_layout(names, tokenizer, case.n_ctx, case.position, case.own)
    lead = (case.groups,) if case.groups else (case.classes,) if case.own else ()
    generator = torch.Generator().manual_seed(1)
    shapes = [(*lead, case.n_ctx, encoder.width)]
    shapes += [(case.n_ctx, encoder.width)] * (min(case.depth, len(encoder.tower.blocks)) - 1)
    learned = [(0.02 * torch.randn(shape, generator=generator)).to(device) for shape in shapes]
    learned = [tensor.requires_grad_(case.gradients) for tensor in learned]
    context, *deep = learned
    mixture = torch.randn(case.classes, encoder.tower.embed_dim, generator=generator)
    mixture = mixture.to(device)

    def run() -> list[Tensor]:
        features = F.normalize(encoder(layout, context, deep), dim=-1)
        if not case.gradients:
            return [features]
        for tensor in learned:
            tensor.grad = None
        (features * mixture).sum().backward()
        return [features.detach(), *(tensor.grad for tensor in learned)]  # type: ignore[misc]

    prompts = max(1, case.groups)
    tokens = prompts * (layout.n_tokens if encoder.kind == "shared" else case.classes * length)
    return run, encoder.kind, tokens


def measure(
    name: str, way: str, rounds: int, small: bool, device: str = "cpu"
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Measure one way for one case in this process; its row, and its features and gradients."""
    run, kind, tokens = make_pass(CASES[name], way, small, device)
    results: list[np.ndarray] = []
    flops = 0

    def counted() -> None:
        nonlocal flops
        flops = count_flops(lambda: results.extend(x.numpy(force=True).copy() for x in run()))

    peak = peak_bytes(counted)
    seconds = in_turns({"pass": run}, rounds)["pass"]
    row = {
        "prompts": name,
        "encoder": kind,
        "tokens": tokens,
        "GFLOP": flops / 1e9,
        "seconds": seconds,
        "of the matrix rate": flops / matrix_rate(device=device) / seconds,
        "MB": peak / 1e6,
    }
    return row, results


def differences(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> dict[str, float]:
    """Largest difference of features, and relative difference of gradients."""
    found = {"features differ": float(np.abs(ours[0] - theirs[0]).max())}
    if len(ours) > 1:
        pairs = zip(ours[1:], theirs[1:], strict=True)
        norm = np.linalg.norm
        found["gradients differ"] = max(float(norm(a - b) / norm(b)) for a, b in pairs)
    return found


def main() -> None:
    parser = parser_of(__doc__ or "", rounds=3)
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    args = parser.parse_args()
    rows = []
    for name in args.case:
        options = (args.rounds, args.small, args.device)
        found = [alone(args, measure, name, way, *options) for way in CASES[name].ways]
        rows += [row for row, _ in found]
        if len(found) == 2:
            (naive, theirs), (shared, ours) = found
            shared["faster"] = naive["seconds"] / shared["seconds"]
            shared.update(differences(ours, theirs))
    report(args, rows)


if __name__ == "__main__":
    main()
