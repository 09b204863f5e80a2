"""Training-time terms inside other people's training code, the penalty first.

`CMPenalty` adds `cmp_loss` to every cross-entropy of a ``with`` block; `plug` does so for a Dassl
trainer, with this or any other term, with the settings of the config nodes that `add_term_config`
makes.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from coop_cmp.checkout.named_logits import penalty_logits
from coop_cmp.checkout.scope import TermScope
from coop_cmp.config import add_settings, read
from coop_cmp.errors import UserError, closest
from coop_cmp.losses.cmp import Form, cmp_loss
from coop_cmp.losses.names import TERMS, WEIGHT, settings_of, twin_of

__all__ = ["CMPMixin", "CMPenalty", "add_cmp_config", "penalty_logits", "plug"]
TrainerClass = TypeVar("TrainerClass", bound=type)


class CMPenalty(TermScope):
    """A scope in which every cross-entropy carries the penalty, see `TermScope`.

    Args:
        lam: The penalty's weight, finite and not negative.
        form: ``"ratio"`` or ``"log"``, see `cmp_loss`.
        eps: See `cmp_loss`.
    """

    def __init__(self, lam: float = 0.01, form: Form = "ratio", eps: float = 1e-10) -> None:
        super().__init__("CMP", lam, form=form, eps=eps)
        self.form, self.eps = form, eps

    def _mean_of(self, logits: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
        # Values are not checked: cross-entropy has checked the labels, and a NaN must reach the
        # trainer's own test for it.
        options: Any = {"ignore_index": ignore_index, "validate": False}
        return cmp_loss(logits, labels, self.form, self.eps, **options)


class TermMixin:
    """Adds a term to a Dassl trainer: ``class CoOp_MbLS(mixin_of("MbLS"), CoOp)``.

    ``forward_backward`` runs inside a scope with the settings of the term's config node, and the
    loss summary gains ``loss_<term>``: the term's mean over the batch (and over the calls, if the
    trainer computes more than one cross-entropy).

    A term that ``needs`` more than logits asks the trainer: ``zero_shot_logits(batch)`` [B, C] and
    ``text_features()``, the learned and the zero-shot text features of the last logits.
    """

    term: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    cfg: Any
    _scope: TermScope | None = None
    _settings: dict[str, Any]
    _batches: tuple[Any, ...] = ()

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)  # type: ignore[misc]
        scope_of(cfg, self.term)
        for need in self.needs:
            if not callable(getattr(self, need, None)):
                raise UserError(
                    f"{type(self).__name__}: {self.term} needs more than logits, and this trainer "
                    f"has no method {need}; use a term that needs only logits: "
                    f"{', '.join(name for name in TERMS if not TERMS[name].needs)}"
                )

    def forward_backward(self, *batches: Any) -> dict[str, Any]:
        settings = settings_of(self.cfg, self.term)
        if self._scope is None or settings != self._settings:
            self._scope, self._settings = scope_of(self.cfg, self.term), settings
            self._scope.tell = lambda line: print(f"coop_cmp: {line}")
            self._scope.needs = {need: partial(self._ask, need) for need in self.needs}
        self._batches = batches
        with self._scope as scope:
            summary = super().forward_backward(*batches)  # type: ignore[misc]
        if not scope.calls:
            raise RuntimeError(
                f"{type(self).__name__}: forward_backward ran no cross-entropy in this thread, so "
                "there was nothing to penalise. Under DataParallel run on one GPU "
                "(CUDA_VISIBLE_DEVICES=0) or compute the loss outside the replicas; a trainer with "
                "a loss of its own must call torch.nn.functional.cross_entropy or nll_loss, or add "
                "the function of coop_cmp.losses itself."
            )
        return {**(summary or {}), f"loss_{self.term.lower()}": scope.unread_mean}

    def _ask(self, need: str) -> Any:
        arguments = self._batches if need == "zero_shot_logits" else ()
        return getattr(self, need)(*arguments)


class CMPMixin(TermMixin):
    """Adds the penalty to a Dassl trainer: ``class CoOp_CMP(CMPMixin, CoOp)``."""

    term = "CMP"


@cache
def mixin_of(term: str) -> type[TermMixin]:
    """The mixin that adds a term, by the term's name."""
    if term not in TERMS:
        raise UserError(f'there is no term "{term}"{closest(term, TERMS)}')
    if term == CMPMixin.term:
        return CMPMixin
    doc = f"Adds {TERMS[term].title} to a Dassl trainer."
    members = {"__doc__": doc, "term": term, "needs": TERMS[term].needs}
    return type(f"{term}Mixin", (TermMixin,), members)


def plug(trainer_class: TrainerClass, register: bool = True, term: str = "CMP") -> TrainerClass:
    """Make ``<Name>_<Term>``, the twin of a Dassl trainer that trains with the term.

    Args:
        trainer_class: A trainer whose ``forward_backward`` computes a cross-entropy.
        register: Also enter the twin in ``dassl.engine.TRAINER_REGISTRY``.
        term: The term's name.

    Example:
        >>> CoOp_CMP = plug(CoOp)  # doctest: +SKIP
    """
    if issubclass(trainer_class, TermMixin):
        raise UserError(f"plug: {trainer_class.__name__} already carries the penalty")
    if not hasattr(trainer_class, "forward_backward"):
        raise UserError(f"plug: {trainer_class.__name__} has no forward_backward; is it a trainer?")
    if not getattr(trainer_class, "cross_entropy", True):
        raise UserError(f"plug: {trainer_class.__name__} trains with no cross-entropy to add to")
    doc = f"{trainer_class.__name__} with {TERMS[term].title}."
    members = {"__doc__": doc, "__module__": trainer_class.__module__}
    bases = (mixin_of(term), trainer_class)
    twin: Any = type(twin_of(trainer_class.__name__, term), bases, members)
    if register:
        from dassl.engine import TRAINER_REGISTRY

        TRAINER_REGISTRY.register(twin)
    return twin


def plug_all(trainer_class: TrainerClass) -> TrainerClass:
    """Register the twins of a Dassl trainer with every term; usable as a decorator."""
    for term in TERMS:
        plug(trainer_class, term=term)
    return trainer_class


def add_cmp_config(cfg: Any) -> None:
    """Add the node ``TRAINER.CMP`` with its defaults to a Dassl config that does not have it."""
    add_term_config(cfg, "CMP")


def add_term_config(cfg: Any, *terms: str) -> None:
    """Add the nodes of the terms, or of all, to a Dassl config that does not have them."""
    for term in terms or TERMS:
        add_settings(cfg, f"TRAINER.{TERMS[term].node}")


def scope_of(cfg: Any, term: str) -> TermScope:
    """A scope with the settings of a config; wrong ones are refused."""
    node, found = f"TRAINER.{TERMS[term].node}", settings_of(cfg, term)
    missing = [key for key in TERMS[term].settings if key not in found]
    if missing:
        raise UserError(
            f"{node}.{missing[0]} is missing: call coop_cmp.add_term_config(cfg) on the config"
        )
    settings = {key.lower(): read(f"{node}.{key}", value) for key, value in found.items()}
    lam = settings.pop(WEIGHT.lower(), None)
    return CMPenalty(lam, **settings) if term == "CMP" else TermScope(term, lam, **settings)
