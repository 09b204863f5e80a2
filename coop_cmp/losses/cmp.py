"""The confidence misalignment penalty (CMP) of a batch of logits.

Khan and Syed, "Technical report on logit redistribution for better domain generalization in
low-shot classification with foundation models". What it is and does: docs/penalty.md.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.losses.checks import check_choice, check_positive, wide

Form = Literal["ratio", "log"]
Reduction = Literal["mean", "sum", "none"]


class _PerSamplePenalty(torch.autograd.Function):
    """The penalty of each sample, with its gradient in closed form."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, logits: Tensor, labels: Tensor, counted: Tensor | None, form: Form, eps: float
    ) -> Tensor:
        labels = labels.unsqueeze(1)  # [N, 1], as every per-sample tensor below
        true = logits.gather(1, labels)
        top = logits.amax(1, keepdim=True)
        wrong = top > true
        if counted is not None:
            wrong &= counted.unsqueeze(1)
        right = ~wrong
        # The denominator is sum over competitors of exp(z) + eps * sum over all of exp(z). Shifted
        # by the largest logit it is at least 1 for a wrong sample, and nothing overflows.
        competitors = logits.clone().gt_(true)  # 1.0 or 0.0; [N, C]
        weights = (logits - top).exp_().mul_(competitors.add_(eps))  # [N, C]
        denominator = weights.sum(1, keepdim=True).masked_fill_(right, 1)
        if form == "ratio":
            value = (true - top).exp_().div_(denominator)
            slope = value.masked_fill(right, 0)
        else:
            value = denominator.log().sub_(true - top)
            slope = wrong.to(logits.dtype).neg_()
        ctx.save_for_backward(weights, labels, slope, slope / denominator)
        return value.masked_fill(right, 0).squeeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:  # type: ignore[override]
        if torch.is_grad_enabled():  # autograd's own guard would let the term vanish silently
            raise RuntimeError("cmp_loss can be differentiated only once: use create_graph=False")
        weights, labels, slope, slope_per_weight = ctx.saved_tensors
        grad = grad.unsqueeze(1)
        logits_grad = weights * (-grad * slope_per_weight)
        logits_grad.scatter_add_(1, labels, grad * slope)
        return logits_grad, None, None, None, None


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
    included. Computed in log space, in float32 for half-precision logits, without a Python loop.

    Args:
        logits: Scores before the softmax, shape [N, C].
        labels: True classes, integers in ``[0, C)``, shape [N].
        form: ``"ratio"`` or ``"log"``.
        eps: Added to the probability of the competitors; positive.
        reduction: ``"mean"`` over the counted samples, ``"sum"``, or ``"none"`` for shape [N].
        ignore_index: A label whose samples do not count, as in cross-entropy. None: there is none.
        validate: Also check values (finite logits, labels in range). On a GPU that waits for the
            device; False leaves the check to the caller.

    Returns:
        A float32 (or float64) scalar, or shape [N] for ``reduction="none"``. It can be
        differentiated once.

    Raises:
        UserError: (a ValueError) for wrong shapes, dtypes, values or options.

    Example:
        >>> logits = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]).log()
        >>> cmp_loss(logits, torch.tensor([0, 0]), reduction="none")
        tensor([0.2500, 0.0000])
    """
    check_settings(form, eps)
    check_choice("reduction", reduction, get_args(Reduction))
    logits, labels = wide(logits, labels)
    if validate:
        _check_values(logits, labels, ignore_index)
    counted = None
    if ignore_index is not None:
        counted = labels != ignore_index
        labels = labels.masked_fill(~counted, 0)
    per_sample: Tensor = _PerSamplePenalty.apply(logits, labels, counted, form, eps)
    if reduction == "none":
        return per_sample
    total = per_sample.sum()
    if reduction == "sum":
        return total
    return total / (max(len(labels), 1) if counted is None else counted.sum().clamp(min=1))


def check_settings(form: Form, eps: float) -> None:
    """Refuse an unknown form and an eps that is not a positive number."""
    check_choice("form", form, get_args(Form))
    check_positive("eps", eps)


def _check_values(logits: Tensor, labels: Tensor, ignore_index: int | None) -> None:
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
