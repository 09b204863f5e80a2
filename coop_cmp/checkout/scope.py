"""A scope in which cross-entropy carries a training-time term, for losses that are out of reach.

``F.cross_entropy``, ``nn.CrossEntropyLoss`` and every name under which code holds either end in one
C function, which torch looks up at each call. It is replaced while a scope is open. (A
``TorchFunctionMode`` would see the calls too, but while one is active torch takes another kernel
for frozen attention layers, and lambda 0 would not be bit-identical.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext

from coop_cmp.errors import UserError, closest
from coop_cmp.losses import function_of
from coop_cmp.losses.checks import check_number
from coop_cmp.losses.cmp import Form
from coop_cmp.losses.names import TERMS, WEIGHT

NONE, MEAN, SUM = range(3)  # reductions, as torch's C function takes them
_C: Any = torch._C._nn
_plain: Any = None  # the C function that is replaced while scopes are open
_open: list[TermScope] = []  # innermost last


class TermScope:
    """Add a term to every cross-entropy of a ``with`` block, or put it in its place.

    With weight 0 the cross-entropy comes back untouched, bit for bit, and the term is only
    recorded. Scopes nest and add up. A scope in which no cross-entropy ran ends with an error, as
    the term would silently do nothing.

    Args:
        term: A name of :data:`coop_cmp.losses.names.TERMS`.
        lam: The weight of an added term, finite and not negative; None for its default.
        needs: What the term needs besides logits, as functions without arguments.
        settings: Of the term's function.
    """

    def __init__(
        self,
        term: str,
        lam: float | None = None,
        needs: Mapping[str, Callable[[], Any]] | None = None,
        **settings: Any,
    ) -> None:
        if term not in TERMS:
            raise UserError(f'there is no term "{term}"{closest(term, TERMS)}')
        self.term, self.settings, self.needs = TERMS[term], settings, dict(needs or {})
        if self.term.replaces and lam is not None:
            raise UserError(f"{term} replaces cross-entropy and has no weight, got lambda {lam!r}")
        self.lam: Any = None
        if not self.term.replaces:
            self.lam = self.term.settings[WEIGHT].default if lam is None else lam
            check_number("lambda", self.lam)
        for need in self.term.needs:
            if need not in self.needs:
                raise UserError(f"{term} needs {need}: give TermScope(needs=...)")
        self._function = function_of(term)
        self._values: list[Tensor] = []
        # Refuse wrong settings now and not in training: apply the term to a made-up sample.
        logits, text = torch.zeros(1, 2), torch.zeros(2, 1)
        made_up = {"zero_shot_logits": logits, "text_features": (text, text)}
        needed = [made_up[need] for need in self.term.needs]
        self._function(logits, torch.zeros(1, dtype=torch.long), *needed, **settings)

    @property
    def calls(self) -> int:
        """How many cross-entropies ran since the scope was entered."""
        return len(self._values)

    @property
    def value(self) -> float:
        """The term of the last cross-entropy, averaged over its samples; NaN before the first."""
        return float(self._values[-1]) if self._values else math.nan

    @property
    def mean(self) -> float:
        """Mean of `value` over all cross-entropies of the scope; NaN before the first."""
        return sum(map(float, self._values)) / self.calls if self._values else math.nan

    def __enter__(self) -> TermScope:
        global _plain
        if self in _open:
            raise RuntimeError(f"this {type(self).__name__} is already entered; make another one")
        if not _open:
            _plain, _C.cross_entropy_loss = _C.cross_entropy_loss, _with_terms
        self._values = []
        _open.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _open.remove(self)
        if not _open:
            _C.cross_entropy_loss = _plain
        if kind is None and not self._values:
            raise RuntimeError(
                f"{self.term.name}: no cross-entropy ran, so the term was added to nothing. Call "
                "torch.nn.functional.cross_entropy outside of compiled code, or add the function "
                "of coop_cmp.losses to the loss"
            )

    def _apply(
        self, loss: Tensor, logits: Tensor, labels: Tensor, kept: Tensor, total: bool
    ) -> Tensor:
        """Return the loss with the term of those of logits [N, C] and labels [N] that count."""
        with (
            torch.set_grad_enabled(torch.is_grad_enabled() and self.lam != 0),
            torch.autocast(logits.device.type, enabled=False),
        ):
            needed = {need: self.needs[need]() for need in self.term.needs}
            if not kept.all():
                logits, labels = logits[kept], labels[kept]
                if "zero_shot_logits" in needed:
                    needed["zero_shot_logits"] = needed["zero_shot_logits"][kept]
            mean = self._function(logits, labels, *needed.values(), **self.settings)
        self._values.append(mean.detach())
        term = mean * len(labels) if total else mean
        if self.term.replaces:
            return term.to(loss.dtype)
        return (loss + self.lam * term).to(loss.dtype) if self.lam else loss


class CMPenalty(TermScope):
    """Add the confidence misalignment penalty to every cross-entropy of a ``with`` block.

    Args:
        lam: The penalty's weight, finite and not negative.
        form: ``"ratio"`` or ``"log"``, see `cmp_loss`.
        eps: See `cmp_loss`.
    """

    def __init__(self, lam: float = 0.01, form: Form = "ratio", eps: float = 1e-10) -> None:
        super().__init__("CMP", lam, form=form, eps=eps)
        # Logits and labels are not checked: cross-entropy has checked the labels, and a NaN must
        # reach the trainer's own test for it.
        self.settings["validate"] = False


def _with_terms(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Compute a cross-entropy with the terms of the open scopes.

    Args:
        input: Logits [N, C], [C] or [N, C, d1, ...].
        target: Class indices [N], [] or [N, d1, ...].
    """
    scopes = sorted(_open, key=lambda scope: not scope.term.replaces)
    replacing = [scope.term.name for scope in scopes if scope.term.replaces]
    name = scopes[0].term.name
    if TracingContext.try_get() is not None:
        raise RuntimeError(f"{name}: leave the cross-entropy out of what is compiled")
    if target.is_floating_point():
        raise UserError(f"{name}: cross_entropy must be given class indices, got probabilities")
    if reduction == NONE:
        raise UserError(
            f'{name}: cross_entropy must use reduction="mean" or "sum", got "none"; reduce the '
            "loss in the call, or add the term by hand"
        )
    if len(replacing) > 1:
        raise UserError(f"{' and '.join(replacing)} both replace cross-entropy: use one of them")
    if replacing and (weight is not None or label_smoothing):
        raise UserError(f"{name} replaces cross-entropy: no class weights, no label smoothing")
    loss = _plain(input, target, weight, reduction, ignore_index, label_smoothing)
    rows = (input if input.dim() > 1 else input.unsqueeze(0)).movedim(1, -1).flatten(0, -2)
    labels = target.flatten()
    for scope in scopes:
        loss = scope._apply(loss, rows, labels, labels != ignore_index, reduction == SUM)
    return loss
