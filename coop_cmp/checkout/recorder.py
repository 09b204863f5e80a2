"""Results stored beside whatever evaluator a checkout uses."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from coop_cmp.losses.names import split_trainer
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
        cfg.freeze()
        if cfg.OUTPUT_DIR:
            claim(cfg.OUTPUT_DIR, identify(cfg), elsewhere=True)
        self.own = trainer.evaluator
        self.keeper: Any = self.own
        if isinstance(self.own, CalibrationEvaluator):
            self.own.cfg = cfg
        else:
            self.keeper = CalibrationEvaluator(cfg, lab2cname=getattr(trainer, "lab2cname", None))
        self.stored = False
        self.refused = ""  # what the evaluator was given, if not logits and labels
        self._keep = _methods(self.keeper)
        self._plain = _methods(self.own)
        for key in self._plain:
            setattr(self.own, key, getattr(self, key))
        self.trainer, self._train, self._test = trainer, trainer.train, trainer.test
        trainer.train, trainer.test = self.train, self.test
        self.tests = 0

    @property
    def beside(self) -> bool:
        """Whether the evaluator is not the calibration evaluator itself."""
        return self.keeper is not self.own

    def train(self, *given: Any, **named: Any) -> Any:
        """The trainer's training, which says so if it ends without a test."""
        result = self._train(*given, **named)
        if not self.tests:
            print(
                "coop_cmp: no results.json is written: this training ends without a test; test the "
                "model that it left with --eval-only --model-dir and another --output-dir"
            )
        return result

    def test(self, split: str | None = None, *more: Any, **named: Any) -> Any:
        """The trainer's test; the keeper is told the split, as upstream Dassl does not."""
        cfg = self.keeper.cfg
        self.keeper.split = split or cfg.TEST.SPLIT
        node = split_trainer(cfg.TRAINER.NAME)[0].upper()
        self.keeper.facts = {
            "device": getattr(self.trainer, "device", None),
            "precision": lookup(cfg, f"TRAINER.{node}.PREC", None),
        }
        self.stored, self.tests = False, self.tests + 1
        result = self._test(split, *more, **named)
        if not self.stored:
            why = self.refused or "its test does not use the evaluator"
            print(f"coop_cmp: no results.json is written: {why}")
        return result

    def reset(self) -> None:
        """Forget all batches."""
        self.refused = ""
        self._keep["reset"]()
        if self.beside:
            self._plain["reset"]()
        else:
            self.own._y_score = []  # where CLIP_Calibration's trainers look for the logits

    def process(self, scores: Any, labels: Any, *more: Any) -> None:
        """Take a batch; more than two arguments are the checkout's own."""
        if self.beside:
            self._plain["process"](scores, labels, *more)
        if _are_logits(scores, labels):
            self._keep["process"](scores, labels)
        else:
            self.refused = (
                f"{type(self.own).__name__} is given {_describe(scores)} and {_describe(labels)}, "
                "not logits [N, C] and labels [N]"
            )
        if more and not self.beside:
            self.own._y_score.extend(scores.tolist())

    def evaluate(self, *given: Any) -> Any:
        """The evaluator's results; those of the calibration evaluator are stored beside them."""
        if not self.beside:
            return self._store(given)
        results = self._plain["evaluate"](*given)
        if not self.refused and self.keeper._y_true:
            with contextlib.redirect_stdout(io.StringIO()):
                self._store(given)
            cfg = self.keeper.cfg
            if cfg.OUTPUT_DIR and self.keeper.split == cfg.TEST.SPLIT:
                print(f"coop_cmp: results.json is written beside {type(self.own).__name__}")
        return results

    def _store(self, given: tuple[Any, ...]) -> Any:
        probabilities, labels = _calibrated(given), torch.tensor(self.keeper._y_true)
        if probabilities is not None and len(probabilities) == len(labels):
            self._keep["reset"]()
            self._keep["process"](probabilities.log(), labels)
        results = self._keep["evaluate"]()
        self.stored = True
        return results


def record(trainer: Any, name: str) -> None:
    """Store the results of a trainer's tests under ``name``, or say why that cannot be."""
    evaluator = getattr(trainer, "evaluator", None)
    if all(hasattr(evaluator, key) for key in METHODS):
        Recorder(trainer, name)
    else:
        print(f"coop_cmp: no results.json will be written: {name} has no evaluator of Dassl's kind")


def _methods(evaluator: Any) -> dict[str, Callable[..., Any]]:
    return {key: getattr(evaluator, key) for key in METHODS}


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
