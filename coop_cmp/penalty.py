"""The confidence misalignment penalty inside other people's training code.

`CMPenalty` adds `cmp_loss` to every cross-entropy of a ``with`` block; `CMPMixin` and `plug` do so
for a Dassl trainer, with the settings of the config node that `add_cmp_config` makes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from coop_cmp.config import add_settings
from coop_cmp.errors import UserError
from coop_cmp.losses.checks import check_number
from coop_cmp.losses.cmp import Form, Reduction, check_settings, cmp_loss
from coop_cmp.settings import choice, declare, number

TrainerClass = TypeVar("TrainerClass", bound=type)

declare(
    "TRAINER.CMP",
    LAMBDA=number(0.01, "weight of the penalty", low=0),
    FORM=choice("ratio", ("ratio", "log"), "of equation 2, or of the boundedness proof"),
    EPS=number(1e-10, "added to the sum of the competitors' probabilities", above=0),
)


class CMPenalty:
    """A scope in which every cross-entropy carries the penalty.

    Inside ``with CMPenalty(lam) as penalty:`` each ``cross_entropy(logits, labels)`` of this
    thread, called through ``torch.nn.functional`` or ``nn.CrossEntropyLoss``, returns cross-entropy
    plus ``lam * cmp_loss`` of the same logits, with the cross-entropy's own reduction.
    `penalty_logits` names other logits for the penalty. Scopes nest and add up. With ``lam = 0``
    the cross-entropy comes back untouched, bit for bit, and the penalty is only recorded.

    Args:
        lam: The penalty's weight, finite and not negative.
        form: ``"ratio"`` or ``"log"``, see `cmp_loss`.
        eps: See `cmp_loss`.
    """

    def __init__(self, lam: float = 0.01, form: Form = "ratio", eps: float = 1e-10) -> None:
        check_number("lambda", lam)
        check_settings(form, eps)
        self.lam, self.form, self.eps = float(lam), form, float(eps)
        self._values: list[Tensor] = []
        self._thread = 0

    @property
    def calls(self) -> int:
        """How many cross-entropies the scope has seen since it was entered.

        One that activation checkpointing computes again in the backward pass is not counted twice.
        """
        return len(self._values)

    @property
    def value(self) -> float:
        """Mean penalty of the samples of the last cross-entropy; NaN before the first."""
        return float(self._values[-1]) if self._values else math.nan

    @property
    def mean(self) -> float:
        """Mean of `value` over all cross-entropies of the scope; NaN before the first."""
        return sum(map(float, self._values)) / self.calls if self._values else math.nan

    def __enter__(self) -> CMPenalty:
        global _plain
        with _lock:
            if self in _scopes:
                raise RuntimeError("this CMPenalty is already entered; make another one to nest it")
            if not _scopes:
                _plain = F.cross_entropy
                F.cross_entropy = _cross_entropy  # type: ignore[assignment]
            self._values, self._thread = [], threading.get_ident()
            _scopes.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        with _lock:
            _scopes.remove(self)
            if not _scopes:
                F.cross_entropy = _plain

    def _penalise(
        self, loss: Tensor, logits: Tensor, labels: Tensor, ignore_index: int, reduction: Reduction
    ) -> tuple[Tensor, Tensor]:
        """The loss with the penalty, and the penalty's mean. Shapes [], [N, C], [N]."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.lam > 0):
            # Values are not checked: cross-entropy has checked the labels, and a NaN must reach the
            # trainer's own test for it.
            penalty = cmp_loss(
                logits,
                labels,
                self.form,
                self.eps,
                reduction,
                ignore_index=ignore_index,
                validate=False,
            )
        mean = penalty.detach()
        if reduction == "sum":
            mean = mean / (labels != ignore_index).sum().clamp(min=1)
        if self.lam > 0:
            loss = loss + (self.lam * penalty).to(loss.dtype)
        return loss, mean


# A TorchFunctionMode could see cross-entropy too, but while any such mode is active PyTorch takes
# another kernel for frozen attention layers (torch.overrides.has_torch_function is then true for
# every tensor), and lambda = 0 would no longer be bit-identical to the baseline. So the one name
# through which everybody calls cross-entropy is replaced while a scope is open.
_lock = threading.Lock()
_scopes: list[CMPenalty] = []  # entered and not yet left, of all threads, innermost last
_plain = F.cross_entropy  # what _cross_entropy stands in for
_other_logits: ContextVar[Tensor | None] = ContextVar("penalty_logits", default=None)


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Stands in for ``torch.nn.functional.cross_entropy`` while a scope is open."""
    loss = _plain(
        input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
    )
    # Activation checkpointing repeats a forward pass inside the backward pass, on a GPU in one of
    # autograd's own threads: the repeated cross-entropy must be penalised like the first.
    repeated = torch._C._current_graph_task_id() != -1
    here = threading.get_ident()
    scopes = [scope for scope in tuple(_scopes) if repeated or scope._thread == here]
    if not scopes:
        return loss
    if target.is_floating_point():
        raise UserError(
            "CMPenalty: the target of cross_entropy must be class indices, got probabilities; the "
            "penalty needs one true class per sample"
        )
    if reduction == "none" or size_average is not None or reduce is not None:
        raise UserError(
            'CMPenalty: cross_entropy must use reduction="mean" or "sum", got reduction='
            f"{reduction!r}, size_average={size_average}, reduce={reduce}; reduce the loss in the "
            "call, or add lam * cmp_loss(..., reduction='none') by hand"
        )
    logits = _penalised_logits(input)
    if logits.dim() == 1:
        logits, target = logits.unsqueeze(0), target.unsqueeze(0)
    rows = logits.movedim(1, -1).flatten(0, -2)  # [N, C, d1, ...] -> [N * d1 * ..., C]
    for scope in reversed(scopes):
        loss, mean = scope._penalise(loss, rows, target.flatten(), ignore_index, reduction)
        if not repeated:
            scope._values.append(mean)
    return loss


def _penalised_logits(input: Tensor) -> Tensor:
    other = _other_logits.get()
    if other is None:
        return input
    if other.shape != input.shape:
        raise UserError(
            f"penalty_logits: expected logits of shape {tuple(input.shape)}, as cross_entropy got, "
            f"got {tuple(other.shape)}"
        )
    return other


@contextmanager
def penalty_logits(logits: Tensor) -> Iterator[None]:
    """Name the logits that a surrounding `CMPenalty` penalises, where cross-entropy sees others.

    For methods whose training loss is not the cross-entropy of the logits that predict (ProDA
    trains on an upper bound). Outside a `CMPenalty` it does nothing.

    Args:
        logits: Of the same shape as the first argument of cross-entropy.
    """
    token = _other_logits.set(logits)
    try:
        yield
    finally:
        _other_logits.reset(token)


class CMPMixin:
    """Adds the penalty to a Dassl trainer: ``class CoOp_CMP(CMPMixin, CoOp)``.

    ``forward_backward`` runs inside a `CMPenalty` with the settings of ``cfg.TRAINER.CMP``, and the
    loss summary gains ``loss_cmp``: the penalty's mean over the batch (and over the calls, if the
    trainer computes more than one cross-entropy).
    """

    cfg: Any

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)  # type: ignore[misc]
        _scope_of(cfg)

    def forward_backward(self, *batches: Any) -> dict[str, Any]:
        with _scope_of(self.cfg) as penalty:
            summary = super().forward_backward(*batches)  # type: ignore[misc]
        if not penalty.calls:
            raise RuntimeError(
                f"{type(self).__name__}: forward_backward ran no torch.nn.functional.cross_entropy "
                "in this thread, so there was nothing to penalise. Under DataParallel run on one "
                "GPU (CUDA_VISIBLE_DEVICES=0) or compute the loss outside the replicas; a trainer "
                "that imports the function by name, or has a loss of its own, must call "
                "F.cross_entropy or add coop_cmp.cmp_loss itself."
            )
        return {**(summary or {}), "loss_cmp": penalty.mean}


def plug(trainer_class: TrainerClass, register: bool = True) -> TrainerClass:
    """Make ``<Name>_CMP``, the twin of a Dassl trainer that trains with the penalty.

    Args:
        trainer_class: A trainer whose ``forward_backward`` computes a cross-entropy.
        register: Also enter the twin in ``dassl.engine.TRAINER_REGISTRY``.

    Example:
        >>> CoOp_CMP = plug(CoOp)  # doctest: +SKIP
    """
    if issubclass(trainer_class, CMPMixin):
        raise UserError(f"plug: {trainer_class.__name__} already carries the penalty")
    if not hasattr(trainer_class, "forward_backward"):
        raise UserError(f"plug: {trainer_class.__name__} has no forward_backward; is it a trainer?")
    name = f"{trainer_class.__name__}_CMP"
    doc = f"{trainer_class.__name__} with the confidence misalignment penalty."
    members = {"__doc__": doc, "__module__": trainer_class.__module__}
    twin: Any = type(name, (CMPMixin, trainer_class), members)
    if register:
        from dassl.engine import TRAINER_REGISTRY

        TRAINER_REGISTRY.register(twin)
    return twin


def add_cmp_config(cfg: Any) -> None:
    """Add the node ``TRAINER.CMP`` with its defaults to a Dassl config that does not have it."""
    add_settings(cfg, "TRAINER.CMP")


def _scope_of(cfg: Any) -> CMPenalty:
    if "CMP" not in cfg.TRAINER:
        raise UserError("TRAINER.CMP is missing: call coop_cmp.add_cmp_config(cfg) on the config")
    node = cfg.TRAINER.CMP
    try:
        return CMPenalty(node.LAMBDA, node.FORM, node.EPS)
    except UserError as error:
        raise UserError(f"TRAINER.CMP: {error}") from None
