"""Results stored beside whatever evaluator a checkout uses."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from coop_cmp.losses.names import split_trainer
from coop_cmp.metrics.records import shown_in
from coop_cmp.runs.evaluator import CalibrationEvaluator
from coop_cmp.runs.identity import claim, identify
from coop_cmp.runs.store import lookup

METHODS = ("reset", "process", "evaluate")


class Recorder:
    """Listens to a trainer's evaluator and stores what the calibration evaluator would.

    The evaluator's own ``reset``, ``process`` and ``evaluate`` run as before. Where the checkout
    gives ``evaluate`` probabilities, as after a calibration of its own, their logarithms are
    stored. If nothing can be stored, each test ends with a line that says why.

    Args:
        trainer: A built trainer.
        name: What the results call it, which may be a variant that the checkout does not know.

    Raises:
        UserError: The output directory holds a run with other settings.
    """

    def __init__(self, trainer: Any, name: str) -> None:
        cfg = trainer.cfg.clone()
        cfg.defrost()
        cfg.TRAINER.NAME = name
        if cfg.OUTPUT_DIR:
            claim(cfg.OUTPUT_DIR, identify(cfg), elsewhere=True)
        self.trainer, self.cfg, self.own = trainer, cfg, trainer.evaluator
        if isinstance(self.own, CalibrationEvaluator):  # asked for by name: only the keeper stores
            self.own.cfg = cfg.clone()
            self.own.cfg.OUTPUT_DIR = ""
        self.keeper: Any = CalibrationEvaluator(cfg, lab2cname=getattr(trainer, "lab2cname", None))
        self.tests, self.stored = 0, False
        self.refused = ""  # what the evaluator was given, if not logits and labels
        for owner, methods in ((self.own, METHODS), (trainer, ("train", "test"))):
            for method in methods:
                setattr(owner, method, partial(getattr(self, method), getattr(owner, method)))

    def train(self, plain: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """The trainer's training, which says so if it ends without a test."""
        result = plain(*given, **named)
        if not self.tests:
            print(
                "coop_cmp: no results.json is written: this training ends without a test; test the "
                "model that it left with --eval-only --model-dir and another --output-dir"
            )
        return result

    def test(
        self, plain: Callable[..., Any], split: str | None = None, *more: Any, **named: Any
    ) -> Any:
        """The trainer's test; the keeper is told the split, as upstream Dassl does not."""
        self.keeper.split = split or self.cfg.TEST.SPLIT
        node = split_trainer(self.cfg.TRAINER.NAME)[0].upper()
        self.keeper.facts = {
            "device": getattr(self.trainer, "device", None),
            "precision": lookup(self.cfg, f"TRAINER.{node}.PREC", None),
        }
        self.stored, self.tests = False, self.tests + 1
        result = plain(split, *more, **named)
        if not self.stored:
            why = self.refused or "its test does not use the evaluator"
            print(f"coop_cmp: no results.json is written: {why}")
        return result

    def reset(self, plain: Callable[..., Any]) -> None:
        """Forget all batches."""
        self.refused = ""
        self.keeper.reset()
        plain()

    def process(self, plain: Callable[..., Any], scores: Any, labels: Any, *more: Any) -> None:
        """Take a batch; more than two arguments are the checkout's own."""
        plain(scores, labels, *more)
        if _are_logits(scores, labels):
            self.keeper.process(scores, labels)
        else:
            self.refused = (
                f"{type(self.own).__name__} is given {_describe(scores)} and {_describe(labels)}, "
                "not logits [N, C] and labels [N]"
            )

    def evaluate(self, plain: Callable[..., Any], *given: Any) -> Any:
        """The evaluator's results; those of the calibration evaluator are stored beside them."""
        results = plain(*given)
        if self.refused or not self.keeper._y_true:
            return results
        probabilities, labels = _calibrated(given), torch.tensor(self.keeper._y_true)
        if probabilities is not None and len(probabilities) == len(labels):
            self.keeper.reset()
            self.keeper.process(probabilities.log(), labels)
        with contextlib.redirect_stdout(io.StringIO()):
            measured = self.keeper.evaluate()
        shown = (f"{m.name} {m.show(measured[m.name] / m.scale)}" for m in shown_in("log"))
        print(f"coop_cmp: {', '.join(shown)}")
        self.stored = True
        return results


def record(trainer: Any, name: str) -> None:
    """Store the results of a trainer's tests under ``name``, or say why that cannot be."""
    evaluator = getattr(trainer, "evaluator", None)
    if all(hasattr(evaluator, key) for key in METHODS):
        Recorder(trainer, name)
    else:
        print(f"coop_cmp: no results.json will be written: {name} has no evaluator of Dassl's kind")


def _are_logits(scores: Any, labels: Any) -> bool:
    tensors = isinstance(scores, Tensor) and isinstance(labels, Tensor)
    return tensors and scores.dim() == 2 and labels.shape == scores.shape[:1]


def _calibrated(given: tuple[Any, ...]) -> Tensor | None:
    """The probabilities [N, C] that a checkout hands to ``evaluate``, none of them zero."""
    if not given or getattr(given[0], "ndim", 0) != 2:
        return None
    first = torch.as_tensor(given[0]).to("cpu", torch.float32)
    if not torch.allclose(first.sum(1), torch.ones(len(first)), atol=1e-3):
        return None
    return first.clamp(min=torch.finfo(torch.float32).tiny)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"a {type(value).__name__}"
