"""Twins of other people's Dassl trainers: ``<Name>_<Term>`` trains ``<Name>`` with a term."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coop_cmp.checkout.scope import CMPenalty, TermScope
from coop_cmp.config import add_settings, read
from coop_cmp.errors import UserError, closest
from coop_cmp.losses.names import TERMS, WEIGHT, settings_of, split_trainer, twin_of


def plug(trainer_class: type[Any], register: bool = True, term: str = "CMP") -> type[Any]:
    """Make ``<Name>_<Term>``, a Dassl trainer that trains as ``<Name>`` does with the term.

    Its ``forward_backward`` runs inside a `TermScope` with the settings of ``TRAINER.<TERM>``, and
    what it returns gains the weighted term as ``loss_<term>`` and the term's mean as ``<term>``, or
    for a term that replaces cross-entropy only ``loss_<term>``. A term that needs more than logits
    asks the trainer for ``zero_shot_logits(batch)`` [B, C] or ``text_features()``, the learned and
    the zero-shot text features of the last logits.

    Args:
        trainer_class: A trainer whose ``forward_backward`` computes a cross-entropy.
        register: Also enter the twin in ``dassl.engine.TRAINER_REGISTRY``.
        term: The term's name.

    Example:
        >>> CoOp_CMP = plug(CoOp)  # doctest: +SKIP
    """
    name = trainer_class.__name__
    if term not in TERMS:
        raise UserError(f'there is no term "{term}"{closest(term, TERMS)}')
    if split_trainer(name)[1]:
        raise UserError(f"plug: {name} already carries a term")
    if not hasattr(trainer_class, "forward_backward"):
        raise UserError(f"plug: {name} has no forward_backward; is it a trainer?")
    if not getattr(trainer_class, "cross_entropy", True):
        raise UserError(f"plug: {name} trains with no cross-entropy to add to")
    for need in TERMS[term].needs:
        if not callable(getattr(trainer_class, need, None)):
            enough = ", ".join(other for other in TERMS if not TERMS[other].needs)
            raise UserError(
                f"{twin_of(name, term)}: {term} needs more than logits, and {name} has no method "
                f"{need}; use a term that needs only logits: {enough}"
            )

    class Twin(trainer_class):
        def _term_scope(self, cfg: Any, *batches: Any) -> TermScope:
            needs: dict[str, Callable[[], Any]] = {
                "zero_shot_logits": lambda: self.zero_shot_logits(*batches),
                "text_features": lambda: self.text_features(),
            }
            return scope_of(cfg, term, needs)

        def check_cfg(self, cfg: Any) -> None:
            super().check_cfg(cfg)
            self._term_scope(cfg)  # refuses wrong settings

        def forward_backward(self, *batches: Any) -> dict[str, Any]:
            with self._term_scope(self.cfg, *batches) as scope:
                summary = super().forward_backward(*batches)
            key = term.lower()
            if scope.term.replaces:
                logged = {f"loss_{key}": scope.mean}
            else:
                logged = {f"loss_{key}": scope.lam * scope.mean, key: scope.mean}
            return {**(summary or {}), **logged}

    Twin.__name__ = Twin.__qualname__ = twin_of(name, term)
    Twin.__module__ = trainer_class.__module__
    Twin.__doc__ = f"{name} with {TERMS[term].title}."
    if register:
        from dassl.engine import TRAINER_REGISTRY

        TRAINER_REGISTRY.register(Twin)
    return Twin


def twins(trainers: list[str]) -> dict[str, str]:
    """Return the names of these trainers' CMP variants; of those that train without a term."""
    from dassl.engine import TRAINER_REGISTRY, TrainerBase

    def trains(name: str) -> bool:
        trainer = TRAINER_REGISTRY.get(name)
        trained = trainer.forward_backward is not TrainerBase.forward_backward
        return trained and getattr(trainer, "cross_entropy", True)

    return {n: twin_of(n) for n in trainers if split_trainer(n)[1] is None and trains(n)}


def ensure_trainer(name: str) -> None:
    """Make and register the trainer ``name`` if it is the twin of a registered one."""
    from dassl.engine import TRAINER_REGISTRY

    known = TRAINER_REGISTRY.registered_names()
    if name in known:
        return
    baseline, term = split_trainer(name)
    if term is None or baseline not in known:
        hint = closest(name, [*known, *twins(known).values()])
        raise UserError(
            f'there is no trainer "{name}" (python -m coop_cmp --list shows all there are){hint}'
        )
    plug(TRAINER_REGISTRY.get(baseline), term=term)
    print(f"coop_cmp: {name} is {baseline} with {TERMS[term].title}")


def add_term_config(cfg: Any, *terms: str) -> None:
    """Add the nodes of the terms, or of all, to a Dassl config that does not have them."""
    for term in terms or TERMS:
        add_settings(cfg, f"TRAINER.{TERMS[term].node}")


def scope_of(cfg: Any, term: str, needs: dict[str, Callable[[], Any]]) -> TermScope:
    """Make the scope of a term with the settings of a config, which are checked."""
    node, found = f"TRAINER.{TERMS[term].node}", settings_of(cfg, term)
    for key in TERMS[term].settings:
        if key not in found:
            raise UserError(f"{node}.{key} is missing: call coop_cmp.add_term_config(cfg)")
    settings = {key.lower(): read(f"{node}.{key}", value) for key, value in found.items()}
    lam = settings.pop(WEIGHT.lower(), None)
    return CMPenalty(lam, **settings) if term == "CMP" else TermScope(term, lam, needs, **settings)
