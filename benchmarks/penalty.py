"""Time of the penalty, forward and backward: against cross-entropy and a plain per-sample loop.

    python benchmarks/penalty.py [--json FILE] [--threads 2]

Prints one row per batch size with the time of each in milliseconds and as a ratio within the same
run, then what the penalty adds to one CoOp training step. Random logits with random labels: nearly
every sample is wrong, the penalty's worst case.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn import functional as F

from coop_cmp import CMPenalty, cmp_loss
from coop_cmp.files import write_json

SIZES = ((32, 100), (32, 1000), (256, 1000))


def looped_penalty(logits: Tensor, labels: Tensor, eps: float = 1e-10) -> Tensor:
    """Equation 2 as one would first write it: one sample after the other. Shapes [N, C], [N]."""
    total = logits.new_zeros(())
    for probs, label in zip(logits.softmax(1), labels, strict=True):
        competitors = probs[probs > probs[label]]
        if len(competitors):
            total = total + probs[label] / (competitors.sum() + eps)
    return total / len(labels)


def milliseconds(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best time of each function, taken in turns so that a busy moment hits all of them."""
    best = dict.fromkeys(functions, math.inf)
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: 1000 * seconds for name, seconds in best.items()}


def compare(n: int, c: int, rounds: int) -> dict[str, float]:
    """Forward and backward of the three losses on logits of shape [n, c]."""
    logits = (5 * torch.randn(n, c)).requires_grad_()
    labels = torch.randint(c, (n,))

    def differentiated(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(loss(logits, labels), logits)

    def in_scope(logits: Tensor, labels: Tensor) -> Tensor:
        with CMPenalty(0.01):
            return F.cross_entropy(logits, labels)

    times = milliseconds(
        {
            "loop": differentiated(looped_penalty),
            "cmp_loss": differentiated(cmp_loss),
            "cmp_loss unchecked": differentiated(lambda z, y: cmp_loss(z, y, validate=False)),
            "cross-entropy": differentiated(F.cross_entropy),
            "cross-entropy in scope": differentiated(in_scope),
        },
        rounds,
    )
    return {"n": n, "c": c, **times, "loop / cmp_loss": times["loop"] / times["cmp_loss"]}


def coop_step(n_classes: int = 100, tokens: int = 5, batch: int = 32, rounds: int = 5) -> float:
    """Milliseconds of CoOp's text side for one step: a ViT-B/16 text tower, forward and backward.

    Five tokens per class are what is left to compute when the prefix is shared and nothing after
    the end token is encoded, so this is a short step: the penalty's share of a full one is smaller.
    """
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True, norm_first=True)
    tower = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).requires_grad_(False)
    context = torch.randn(tokens, 512).requires_grad_()
    names = torch.randn(n_classes, tokens, 512)
    images = F.normalize(torch.randn(batch, 512), dim=1)
    labels = torch.randint(n_classes, (batch,))

    def step() -> None:
        texts = F.normalize(tower(names + context)[:, -1], dim=1)  # [classes, 512]
        F.cross_entropy(100 * images @ texts.t(), labels).backward()

    return milliseconds({"step": step}, rounds)["step"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the numbers to this file")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--rounds", type=int, default=20, help="timed repetitions (default 20)")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    rows = [compare(n, c, args.rounds) for n, c in SIZES]
    print(tabulate(rows, headers="keys", floatfmt=".3f"))
    step = coop_step()
    added = rows[0]["cross-entropy in scope"] - rows[0]["cross-entropy"]
    share = added / step
    print(f"CoOp step, 100 classes: {step:.1f} ms; the penalty adds {added:.3f} ms ({share:.3%})")
    if args.json:
        write_json(args.json, {"rows": rows, "step_ms": step, "added_ms": added, "share": share})


if __name__ == "__main__":
    main()
