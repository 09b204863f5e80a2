"""Time of the penalty, forward and backward: against cross-entropy and a plain per-sample loop.

    python benchmarks/penalty.py [--json FILE] [--threads 2] [--rounds 20]

One row per batch size, in milliseconds and as a ratio within the same run, then what the penalty
adds to one training step of CoOp: the text side of ViT-B/16, 100 classes, 32 images. Random logits
with random labels: nearly every sample is wrong, the penalty's worst case.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from common import in_turns, parser_of, prepare, random_clip, report
from torch import Tensor
from train_step import make_step

from coop_cmp import CMPenalty, cmp_loss

SIZES = ((32, 100), (32, 1000), (256, 1000))


def looped_penalty(logits: Tensor, labels: Tensor, eps: float = 1e-10) -> Tensor:
    """Equation 2 as one would first write it: one sample after the other. Shapes [N, C], [N]."""
    total = logits.new_zeros(())
    for probs, label in zip(logits.softmax(1), labels, strict=True):
        competitors = probs[probs > probs[label]]
        if len(competitors):
            total = total + probs[label] / (competitors.sum() + eps)
    return total / len(labels)


def penalised_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of a CMP variant in place of its baseline's cross-entropy."""
    with CMPenalty(0.01):
        return F.cross_entropy(logits, labels)


def compare(n: int, c: int, rounds: int) -> dict[str, float]:
    """Forward and backward of each loss on logits of shape [n, c]."""
    logits = (5 * torch.randn(n, c)).requires_grad_()
    labels = torch.randint(c, (n,))

    def differentiated(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(loss(logits, labels), logits)

    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "loop": looped_penalty,
        "cmp_loss": cmp_loss,
        "cross-entropy": F.cross_entropy,
        "cross-entropy in scope": penalised_cross_entropy,
    }
    seconds = in_turns({name: differentiated(loss) for name, loss in losses.items()}, rounds)
    times = {f"{name} ms": 1000 * value for name, value in seconds.items()}
    return {"n": n, "c": c, **times, "loop / cmp_loss": seconds["loop"] / seconds["cmp_loss"]}


def main() -> None:
    parser = parser_of(__doc__ or "", rounds=20)
    args = parser.parse_args()
    prepare(args)
    torch.manual_seed(0)
    torch.set_default_device(args.device)
    rows = [compare(n, c, args.rounds) for n, c in SIZES]
    added = rows[0]["cross-entropy in scope ms"] - rows[0]["cross-entropy ms"]
    model = random_clip("ViT-B-16", args.small, image_tower=False)
    run, _ = make_step(model, "CoOp", "shared prefix, stored features")  # the shortest there is
    step = 1000 * in_turns({"step": run}, min(args.rounds, 5))["step"]
    share = {"step ms": step, "penalty adds ms": added, "percent of the step": 100 * added / step}
    report(args, rows, CoOp_step={name: round(value, 4) for name, value in share.items()})


if __name__ == "__main__":
    main()
