"""The confidence misalignment penalty (CMP) of a batch of logits.

Khan and Syed, "Technical report on logit redistribution for better domain generalization in
low-shot classification with foundation models". What it is and does: docs/penalty.md.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.losses.checks import check_choice, check_number, check_shapes

Form = Literal["ratio", "log"]
Reduction = Literal["mean", "sum", "none"]


def cmp_loss(
    logits: Tensor,
    labels: Tensor,
    form: Form = "ratio",
    eps: float = 1e-10,
    reduction: Reduction = "mean",
    *,
    ignore_index: int | None = None,
    validate: bool = True,
) -> Tensor:
    """The confidence misalignment penalty.

    With ``A = {j : z_j > z_y}``, the classes that outrank the true class ``y`` of a sample, and
    ``r = P(y) / (sum over A of P(j) + eps)``, the penalty of the sample is ``r`` (form ``"ratio"``)
    or ``-log r`` (form ``"log"``), and 0 where ``A`` is empty: a correctly classified sample, ties
    included. Computed from log-probabilities, in float32 for half-precision logits.

    Args:
        logits: Scores before the softmax, shape [N, C].
        labels: True classes, integers in ``[0, C)``, shape [N].
        form: ``"ratio"`` or ``"log"``.
        eps: Added to the probability of the competitors; positive.
        reduction: ``"mean"`` over the counted samples, ``"sum"``, or ``"none"`` for shape [N].
        ignore_index: A label whose samples do not count, as in cross-entropy. None: there is none.
        validate: Check all arguments, values included (finite logits, labels in range). On a GPU
            that waits for the device; False leaves the checks to the caller.

    Returns:
        A float32 (or float64) scalar, or shape [N] for ``reduction="none"``.

    Raises:
        UserError: (a ValueError) for wrong shapes, dtypes, values or options.

    Example:
        >>> logits = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]).log()
        >>> cmp_loss(logits, torch.tensor([0, 0]), reduction="none")
        tensor([0.2500, 0.0000])
    """
    if validate:
        _check(logits, labels, form, eps, reduction, ignore_index)
    logits, labels = logits if logits.dtype == torch.float64 else logits.float(), labels.long()
    counted = torch.ones_like(labels, dtype=torch.bool)
    if ignore_index is not None:
        counted = labels != ignore_index
    true_class = (labels * counted).unsqueeze(1)  # [N, 1]
    log_p = logits.log_softmax(1)
    outranks = logits > logits.gather(1, true_class)  # [N, C]
    penalised = outranks.any(1) & counted  # [N]
    mass = (log_p.exp() * outranks).sum(1)  # the competitors' probability, at least 1 / C
    mass = mass.where(penalised, 1)
    log_r = log_p.gather(1, true_class).squeeze(1) - (mass + eps).log()
    penalty = (log_r.exp() if form == "ratio" else -log_r).where(penalised, 0)
    if reduction == "none":
        return penalty
    return penalty.sum() / (counted.sum().clamp(min=1) if reduction == "mean" else 1)


def _check(
    logits: Tensor,
    labels: Tensor,
    form: Form,
    eps: float,
    reduction: Reduction,
    ignore_index: int | None,
) -> None:
    check_choice("form", form, get_args(Form))
    check_number("eps", eps, above=True)
    check_choice("reduction", reduction, get_args(Reduction))
    check_shapes(logits, labels)
    if ignore_index is not None:
        labels = labels[labels != ignore_index]
    if not logits.numel() or not labels.numel():
        return
    extremes = torch.aminmax(logits.detach())  # one pass; a NaN anywhere makes both NaN
    if not all(math.isfinite(extreme) for extreme in extremes):
        raise UserError("logits must be finite, got NaN or infinity")
    first, last = (int(label) for label in torch.aminmax(labels))
    if first < 0 or last >= logits.shape[1]:
        raise UserError(
            f"labels must lie in [0, {logits.shape[1]}), got {first if first < 0 else last}; "
            "for a label that marks samples to leave out, give ignore_index"
        )
