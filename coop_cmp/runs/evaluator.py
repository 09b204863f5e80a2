"""The Dassl evaluator that reports calibration beside accuracy and stores a run's results."""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from dassl.evaluation.build import EVALUATOR_REGISTRY
from dassl.evaluation.evaluator import Classification
from torch import Tensor

from coop_cmp.metrics import Samples, convention
from coop_cmp.metrics.bins import check_bins
from coop_cmp.metrics.panel import measure
from coop_cmp.metrics.records import shown_in
from coop_cmp.runs.store import lookup, store_test


@EVALUATOR_REGISTRY.register()
class CalibrationEvaluator(Classification):
    """Accuracy as Dassl reports it, then calibration of the whole test set, pooled.

    ``evaluate`` stores results, outcomes and predictions in ``cfg.OUTPUT_DIR`` when the split under
    test is ``cfg.TEST.SPLIT``.

    Attributes:
        split: The split under test; None, where the engine does not say, counts as the test split.
        facts: What only the trainer knows, to be stored with the results, see
            :func:`coop_cmp.runs.store.store_test`.
    """

    def __init__(self, cfg: Any, lab2cname: dict[int, str] | None = None, **kwargs: Any) -> None:
        self.split: str | None = None
        self.facts: dict[str, Any] = {}
        self.n_bins = lookup(cfg, "TEST.N_BINS", 10)
        self.closed = lookup(cfg, "TEST.BIN_CLOSED", "right")
        check_bins(self.n_bins, self.closed)  # before the training, not after it
        self._started = time.monotonic()
        self._outputs: list[Tensor] = []
        super().__init__(cfg, lab2cname, **kwargs)
        self._names = lab2cname or {}

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        self._outputs = []
        self._started = time.monotonic()

    def process(self, mo: Tensor, gt: Tensor) -> None:
        """Take logits [B, C] and labels [B]."""
        super().process(mo, gt)
        self._outputs.append(mo.detach().to("cpu", torch.float32))

    def evaluate(self) -> OrderedDict[str, Any]:
        """Print and return the results in percent (``nll`` in nats); store them for the test."""
        results = super().evaluate()
        logits, labels = torch.cat(self._outputs), torch.tensor(self._y_true)
        scores = lookup(self.cfg, "MODEL.SCORES", "softmax")
        samples = Samples(logits, labels, from_logits=True, scores=scores)
        metrics = measure(samples, None, self.n_bins, self.closed)
        for metric in shown_in("log"):
            print(f"* {metric.name}: {metric.show(metrics[metric.name])}")
            results[metric.name] = metric.scale * metrics[metric.name]
        print(f"calibration: {convention(self.n_bins, self.closed)}; nll in nats")
        split = self.split or self.cfg.TEST.SPLIT
        if self.cfg.OUTPUT_DIR and split == self.cfg.TEST.SPLIT:
            names = [self._names.get(i, str(i)) for i in range(logits.shape[1])]
            seconds = {"test": time.monotonic() - self._started}
            folder = Path(self.cfg.OUTPUT_DIR)
            store_test(folder, self.cfg, samples, names, metrics, seconds, self.facts)
        return results
