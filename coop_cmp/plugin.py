"""What makes twins, their config and the calibration evaluator known to the installed Dassl."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from coop_cmp.errors import UserError, closest
from coop_cmp.penalty import add_cmp_config, plug
from coop_cmp.upstream import mend

SUFFIX = "_CMP"


def prepare() -> None:
    """Ready Dassl for a training script that knows nothing of the penalty.

    Afterwards every config that starts from Dassl's defaults has ``TRAINER.CMP``, names the
    calibration evaluator unless told otherwise, and may ask for ``<Trainer>_CMP``.
    """
    import dassl
    import dassl.config
    import dassl.engine.build

    import coop_cmp.evaluator

    mended = mend()
    if mended:
        version = getattr(dassl, "__version__", "(unknown version)")
        print(f"coop_cmp: mended Dassl {version} for torch {torch.__version__}:", ", ".join(mended))
    defaults: Any = dassl.config.cfg_default
    add_cmp_config(defaults)
    defaults.TEST.EVALUATOR = coop_cmp.evaluator.CalibrationEvaluator.__name__
    defaults.TEST.N_BINS, defaults.TEST.BIN_CLOSED = 10, "right"
    _wrap(dassl.config, "clean_cfg", _keeping_the_penalty)
    for module in (dassl.engine, dassl.engine.build):
        _wrap(module, "build_trainer", _with_twins)
    _wrap(dassl.engine.SimpleTrainer, "test", _naming_the_split)


def twins(trainers: list[str]) -> dict[str, str]:
    """The names of these trainers' twins; of those that train and are not twins themselves."""
    from dassl.engine import TRAINER_REGISTRY, TrainerBase

    def trains(name: str) -> bool:
        return TRAINER_REGISTRY.get(name).forward_backward is not TrainerBase.forward_backward

    return {name: name + SUFFIX for name in trainers if not name.endswith(SUFFIX) and trains(name)}


def ensure_trainer(name: str) -> None:
    """Make and register the twin ``name`` if it is the twin of a registered trainer.

    Raises:
        UserError: there is no such trainer.
    """
    from dassl.engine import TRAINER_REGISTRY

    known = TRAINER_REGISTRY.registered_names()
    if name in known:
        return
    baseline = name.removesuffix(SUFFIX)
    if baseline not in known or baseline == name:
        hint = closest(name, [*known, *twins(known).values()])
        raise UserError(
            f'there is no trainer "{name}" (python -m coop_cmp --list shows all there are){hint}'
        )
    plug(TRAINER_REGISTRY.get(baseline))
    print(f"coop_cmp: {name} is {baseline} with the confidence misalignment penalty")


def _wrap(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    if hasattr(owner, name):  # old copies of Dassl, as some checkouts bundle, have less
        setattr(owner, name, wrapper(getattr(owner, name)))


def _with_twins(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(build)
    def build_trainer(cfg: Any) -> Any:
        ensure_trainer(cfg.TRAINER.NAME)
        return build(cfg)

    return build_trainer


def _keeping_the_penalty(clean: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    @functools.wraps(clean)
    def clean_cfg(cfg: Any, trainer: str) -> None:
        node = cfg.TRAINER.CMP
        clean(cfg, trainer.removesuffix(SUFFIX))
        cfg.TRAINER.CMP = node

    return clean_cfg


def _naming_the_split(test: Callable[..., Any]) -> Callable[..., Any]:
    """Tell the evaluator which split it sees, as upstream Dassl does not."""

    @functools.wraps(test)
    def test_split(self: Any, split: str | None = None) -> Any:
        self.evaluator.split = split or self.cfg.TEST.SPLIT
        return test(self, split)

    return test_split
