"""Make twins, their settings and the calibration evaluator known to the installed Dassl."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from coop_cmp.checkout.twins import add_term_config, ensure_trainer
from coop_cmp.checkout.upstream import repair
from coop_cmp.losses.names import TERMS, split_trainer

# Twins that were asked for on the command line, by the baseline that the checkout sees instead.
_asked: dict[str, str] = {}


def prepare(fast: bool = False) -> None:
    """Prepare Dassl for a training script that knows nothing of the penalty.

    Afterwards every config of a trainer has the nodes of all terms, takes integers for floats and
    may ask for ``<Trainer>_CMP``; and every trainer that is built stores its results.

    Args:
        fast: Also accelerate the trainers' text encoders, see :mod:`coop_cmp.checkout.fast`.
    """
    import dassl.config
    import dassl.engine.build
    import yacs.config

    repair()
    complete(dassl.config.cfg_default)
    for name in ("merge_from_file", "merge_from_list"):
        wrap(yacs.config.CfgNode, name, _completing)
    wrap(yacs.config, "_check_and_coerce_cfg_value_type", _taking_integers_for_floats)
    wrap(dassl.config, "clean_cfg", _keeping_the_terms)
    for module in (dassl.engine, dassl.engine.build):
        wrap(module, "build_trainer", functools.partial(_with_twins, fast=fast))


def hide_twins(arguments: list[str]) -> list[str]:
    """Return the arguments of a training script with the baseline in the place of its twin.

    Checkouts compare their trainer's name, look models up by it and build paths with it, so they
    are only told names that they know; `build_trainer` makes the twin that was asked for.
    """

    def baseline(name: str) -> str:
        plain, term = split_trainer(name)
        if term:
            _asked[plain] = name
        return plain

    shown = list(arguments)
    for i, argument in enumerate(arguments):
        if argument.startswith("--trainer="):
            shown[i] = "--trainer=" + baseline(argument.removeprefix("--trainer="))
        elif i and arguments[i - 1] in ("--trainer", "TRAINER.NAME"):
            shown[i] = baseline(argument)
    return shown


def wrap(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Put a function that is made of it in the place of another."""
    if hasattr(owner, name):  # old copies of Dassl, as some checkouts bundle, have less
        plain = getattr(owner, name)
        setattr(owner, name, functools.wraps(plain)(wrapper(plain)))


def _with_twins(build: Callable[[Any], Any], fast: bool) -> Callable[[Any], Any]:
    def build_trainer(cfg: Any) -> Any:
        from dassl.engine import TRAINER_REGISTRY

        from coop_cmp.checkout.fast import accelerate
        from coop_cmp.checkout.recorder import record

        name = _asked.get(cfg.TRAINER.NAME, cfg.TRAINER.NAME)
        is_theirs = name in TRAINER_REGISTRY.registered_names()
        ensure_trainer(name)
        with thawed(cfg):  # which the checkout keeps using
            complete(cfg)
            cfg.TRAINER.NAME = name if is_theirs else split_trainer(name)[0]
        trainer = build(cfg) if is_theirs else TRAINER_REGISTRY.get(name)(cfg)
        record(trainer, name)
        if fast:
            accelerate(trainer)
        return trainer

    return build_trainer


@contextlib.contextmanager
def thawed(cfg: Any) -> Iterator[None]:
    """Let a config that may be frozen be changed."""
    frozen = cfg.is_frozen()
    cfg.defrost()
    yield
    if frozen:
        cfg.freeze()


def complete(cfg: Any) -> None:
    """Add the terms' nodes and the evaluator's settings to a config that lacks them."""
    add_term_config(cfg)
    for key, value in (("N_BINS", 10), ("BIN_CLOSED", "right")):
        cfg.TEST.setdefault(key, value)


def _completing(merge: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Complete a trainer's config before something is merged into it."""

    def completed(cfg: Any, given: Any) -> None:
        if "TRAINER" in cfg and "TEST" in cfg and not cfg.is_frozen():
            complete(cfg)
        merge(cfg, given)

    return completed


def _keeping_the_terms(clean: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    def clean_cfg(cfg: Any, trainer: str) -> None:
        nodes = {t.node: cfg.TRAINER[t.node] for t in TERMS.values() if t.node in cfg.TRAINER}
        clean(cfg, split_trainer(trainer)[0])
        cfg.TRAINER.update(nodes)

    return clean_cfg


def _taking_integers_for_floats(coerce: Callable[..., Any]) -> Callable[..., Any]:
    """Read ``TRAINER.CMP.LAMBDA 0`` as 0.0, where yacs refuses it."""

    def check(replacement: Any, original: Any, key: str, full_key: str) -> Any:
        if type(original) is float and type(replacement) is int:
            replacement = float(replacement)
        return coerce(replacement, original, key, full_key)

    return check
