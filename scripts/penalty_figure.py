"""Draw docs/figures/penalty_gradient.png: the two forms and what they do to the true class.

python scripts/penalty_figure.py [file]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import torch
from matplotlib import pyplot as plt
from torch import Tensor
from torch.nn import functional as F

from coop_cmp import CMPenalty, cmp_loss

LAMBDA = 0.5
TARGET = Path(__file__).parents[1] / "docs" / "figures" / "penalty_gradient.png"


def pull(logits: Tensor, labels: Tensor, form: str | None) -> Tensor:
    """How strongly a step of descent raises each sample's true logit. Shapes [N, C], [N] -> [N]."""
    logits = logits.clone().requires_grad_()
    with CMPenalty(LAMBDA if form else 0.0, form or "ratio"):
        loss = F.cross_entropy(logits, labels, reduction="sum")
    (grad,) = torch.autograd.grad(loss, logits)
    return -grad[:, 0]


def main(target: Path) -> None:
    margin = torch.linspace(-6, 4, 2001)
    logits = torch.stack([margin, torch.zeros_like(margin)], 1)  # the true class and one rival
    labels = torch.zeros(len(margin), dtype=torch.long)
    figure, (values, pulls) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for form in ("ratio", "log"):
        values.plot(margin, cmp_loss(logits, labels, form, reduction="none"), label=form)
    values.set(title="penalty of one sample", xlabel="margin  $z_y - z_{rival}$", ylim=(-0.1, 3))
    pulls.plot(margin, pull(logits, labels, None), "k--", label="cross-entropy")
    for form in ("ratio", "log"):
        pulls.plot(margin, pull(logits, labels, form), label=f"+ {LAMBDA} {form}")
    pulls.set(title="pull on the true logit", xlabel="margin  $z_y - z_{rival}$", ylim=(-0.05, 1.6))
    for axes in (values, pulls):
        axes.axvline(0, color="0.8", zorder=0)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
