"""The scope in which every cross-entropy carries a training-time term."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._guards import TracingContext
from torch.utils.checkpoint import CheckpointFunction

from coop_cmp.checkout import cross_entropy as hooks
from coop_cmp.checkout.cross_entropy import Call, in_backward, is_running
from coop_cmp.checkout.named_logits import named_logits
from coop_cmp.checkout.rounding import lost_share
from coop_cmp.errors import UserError, closest
from coop_cmp.losses import function_of
from coop_cmp.losses.checks import check_number
from coop_cmp.losses.names import TERMS, WEIGHT

Self = TypeVar("Self", bound="TermScope")
TOLERATED = 0.01  # the share of a term's gradient that may be lost to rounding without a word


class TermScope:
    """A scope in which every cross-entropy carries a term, or is replaced by it.

    Inside ``with TermScope("MbLS", 0.1, margin=5) as scope:`` each cross-entropy of this thread
    returns cross-entropy plus 0.1 times the term of the same logits, with the cross-entropy's own
    reduction; a term that replaces cross-entropy is returned alone. It does not matter by which
    name the function is called, see :mod:`coop_cmp.checkout.cross_entropy`. `penalty_logits` names other logits for
    an added term. Scopes nest and add up. With weight 0 the cross-entropy comes back untouched, bit
    for bit, and the term is only recorded.

    Args:
        term: A name of :data:`coop_cmp.losses.names.TERMS`.
        lam: The weight of an added term, finite and not negative; None for its default.
        needs: What the term needs besides logits, as functions without arguments.
        settings: Of the term's function.

    Attributes:
        tell: Called with a line about what the user should know; a warning unless changed.
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
        self.tell: Callable[[str], Any] = warnings.warn
        self._function = function_of(term)
        self._check_settings()
        self._values: list[Tensor] = []
        self._thread = self._unfinished = 0
        self._measured = False

    @property
    def calls(self) -> int:
        """How many cross-entropies the scope has seen since it was entered.

        One that activation checkpointing computes again in the backward pass is not counted twice.
        """
        return len(self._values)

    @property
    def value(self) -> float:
        """The term of the last cross-entropy, averaged over its samples; NaN before the first."""
        return float(self._values[-1]) if self._values else math.nan

    @property
    def mean(self) -> float:
        """Mean of `value` over all cross-entropies of the scope; NaN before the first."""
        return sum(map(float, self._values)) / self.calls if self._values else math.nan

    @property
    def unread_mean(self) -> Tensor:
        """`mean` as a tensor, where it was computed: reading it can wait."""
        return torch.stack(self._values).mean() if self.calls > 1 else self._values[0]

    def __enter__(self: Self) -> Self:
        with _lock:
            if self in _scopes:
                name = type(self).__name__
                raise RuntimeError(f"this {name} is already entered; make another one to nest it")
            if not _scopes:
                hooks.install(_with_terms)
            self._values, self._thread, self._unfinished = [], threading.get_ident(), 0
            _scopes.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        with _lock:
            _scopes.remove(self)
            if not _scopes:
                hooks.remove()
        if kind is not None:
            return
        if self._unfinished:
            raise RuntimeError(
                f"{self.term.name}: the cross-entropy inside a reentrant activation checkpoint was "
                "not differentiated within the scope, and later its gradient would lack the term. "
                "Call backward inside the scope, or checkpoint with use_reentrant=False"
            )
        if not self.calls:
            self.tell(f"{self.term.name}: no cross-entropy ran in this scope and thread")

    def _check_settings(self) -> None:
        """Refuse wrong settings now and not in training: apply the term to a made-up sample."""
        logits, text = torch.zeros(1, 2), torch.zeros(2, 1)
        made_up = {"zero_shot_logits": logits, "text_features": (text, text)}
        needed = [made_up[need] for need in self.term.needs]
        self._function(logits, torch.zeros(1, dtype=torch.long), *needed, **self.settings)

    def _mean_of(self, logits: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
        """The term's mean over the counted samples, for logits [N, C] and labels [N]."""
        for need in self.term.needs:
            if need not in self.needs:
                raise UserError(f"{self.term.name} needs {need}: give TermScope(needs=...)")
        needed = {need: self.needs[need]() for need in self.term.needs}
        kept = labels != ignore_index
        if ignore_index != -100 or labels.device.type == "cpu":
            if not kept.all():
                logits, labels = logits[kept], labels[kept]
                if "zero_shot_logits" in needed:
                    needed["zero_shot_logits"] = needed["zero_shot_logits"][kept]
        elif labels.is_cuda:  # the default, hardly ever meant, is not worth waiting for the device
            torch._assert_async(kept.all(), f"{self.term.name}: give cross_entropy ignore_index")
        return self._function(logits, labels, *needed.values(), **self.settings)

    def _apply(self, call: Call, loss: Tensor) -> Tensor:
        """The loss with the term, or the term in its place."""
        own = self.term.replaces
        logits = call.rows(call.input if own else named_logits(call.input))
        labels = call.target.flatten()
        with (
            torch.set_grad_enabled(torch.is_grad_enabled() and self.lam != 0),
            torch.autocast(logits.device.type, enabled=False),
        ):
            mean = self._mean_of(logits, labels, call.ignore_index)
        if own or self.lam:
            count = (labels != call.ignore_index).sum() if call.reduction == hooks.SUM else 1
            self._measure(call, logits)
            loss = (mean * count if own else loss + self.lam * mean * count).to(loss.dtype)
        self._count(mean)
        return loss

    def _count(self, mean: Tensor) -> None:
        """Record the term, unless checkpointing repeats a cross-entropy."""
        if in_backward():
            self._unfinished -= self._unfinished > 0 and is_running(CheckpointFunction.backward)
            return
        self._values.append(mean.detach())
        if self.lam != 0 and not torch.is_grad_enabled():
            self._unfinished += is_running(CheckpointFunction.forward)

    def _measure(self, call: Call, logits: Tensor) -> None:
        """Once, tell how much of the gradient is lost where half precision adds two of them."""
        half = call.input.dtype in (torch.float16, torch.bfloat16)
        if self._measured or self.term.replaces or not half or not call.loss.requires_grad:
            return
        fine = logits.detach().float().requires_grad_()
        term = self.lam * self._mean_of(fine, call.target.flatten(), call.ignore_index)
        (gradient,) = torch.autograd.grad(term, fine)
        lost = lost_share(call, gradient)
        self._measured = lost is not None
        if lost is not None and lost > TOLERATED:
            self.tell(
                f"{self.term.name}: logits are {call.input.dtype}, and rounding took "
                f"{min(lost, 1):.0%} of the term's gradient in the first batch that has one; train "
                "in single precision, or with a larger weight"
            )


_lock = threading.Lock()
_scopes: list[TermScope] = []  # entered and not yet left, of all threads, innermost last


def _with_terms(call: Call) -> Tensor:
    """What a cross-entropy returns while scopes are open."""
    # Activation checkpointing repeats a forward pass inside the backward pass, on a GPU in one of
    # autograd's own threads: the repeated cross-entropy must be changed like the first.
    here = threading.get_ident()
    scopes = [s for s in reversed(_scopes) if in_backward() or s._thread == here]
    replacing = [scope for scope in scopes if scope.term.replaces]
    if scopes:
        _check(call, scopes)
    loss = call.loss
    for scope in (*replacing, *(scope for scope in scopes if not scope.term.replaces)):
        loss = scope._apply(call, loss)
    return loss


def _check(call: Call, scopes: list[TermScope]) -> None:
    name, replacing = scopes[0].term.name, [s.term.name for s in scopes if s.term.replaces]
    if TracingContext.try_get() is not None:
        raise RuntimeError(
            f"{name}: torch.compile sees {call.function} under a name of its own; call it as "
            f"torch.nn.functional.{call.function}, or leave the loss out of what is compiled"
        )
    if call.target.is_floating_point():
        raise UserError(
            f"{name}: the target of cross_entropy must be class indices, got probabilities; the "
            "term needs one true class per sample"
        )
    if call.reduction == hooks.NONE:
        raise UserError(
            f'{name}: {call.function} must use reduction="mean" or "sum", got reduction=\'none\';'
            " reduce the loss in the call, or add the term by hand"
        )
    if len(replacing) > 1:
        raise UserError(f"{' and '.join(replacing)} both replace cross-entropy: use one of them")
    if replacing and (call.weight is not None or call.label_smoothing):
        raise UserError(
            f"{replacing[0]} replaces cross-entropy and knows no class weights or label smoothing"
        )
    if call.function == "nll_loss" and any(s.term.name == "ZSPenalty" for s in scopes):
        raise UserError("ZSPenalty compares logits with others, but nll_loss got log-probabilities")
