"""The Dassl evaluator that reports calibration beside accuracy and stores a run's results."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
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
from coop_cmp.runs.circumstances import machine
from coop_cmp.runs.identity import identify, read_identity
from coop_cmp.runs.outputs import image_numbers, images_digest
from coop_cmp.runs.store import lookup, store


@EVALUATOR_REGISTRY.register()
class CalibrationEvaluator(Classification):
    """Accuracy as Dassl reports it, then calibration of the whole test set, pooled.

    ``evaluate`` stores results, outcomes and predictions in ``cfg.OUTPUT_DIR`` when the split under
    test is ``cfg.TEST.SPLIT``.

    Attributes:
        split: The split under test; None, where the engine does not say, counts as the test split.
        facts: What the trainer knows, each where it does: ``weights`` (dict with ``name`` and
            ``digest``), ``checkpoint`` (digest of what was learned), ``images`` (names of the
            images tested, in their order), ``text_features`` (of the classifier), ``sizes``
            (dict), ``fit`` (dict, how training went), ``notes`` (list of str), ``device``,
            ``precision``.
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
        if self.cfg.OUTPUT_DIR and self.split in (None, self.cfg.TEST.SPLIT):
            self._store(samples, metrics)
        return results

    def _store(self, samples: Samples, metrics: Mapping[str, float]) -> None:
        """Write what the test has shown."""
        facts, folder = self.facts, Path(self.cfg.OUTPUT_DIR)
        names, notes = facts.get("images"), list(facts.get("notes", []))
        if names is not None and len(names) != len(samples):
            notes.append("the images tested are not those that the data set lists")
            names = None
        # Without names images are known by their positions.
        images = image_numbers(names or [str(position) for position in range(len(samples))])
        weights = {"name": lookup(self.cfg, "MODEL.BACKBONE.WEIGHTS", "")}
        record = {
            **(read_identity(folder) or identify(self.cfg)).as_record(),
            "weights": facts.get("weights", weights),
            "checkpoint": facts.get("checkpoint"),
            "images": images_digest(images) if names is not None else None,
            "metrics": metrics,
            "sizes": {"classes": samples.n_classes, "test": len(samples), **facts.get("sizes", {})},
            "fit": facts.get("fit", {}),
            "seconds": {"test": time.monotonic() - self._started},
            "machine": machine(facts.get("device"), facts.get("precision")),
            "notes": notes,
        }
        classnames = [self._names.get(i, str(i)) for i in range(samples.n_classes)]
        store(folder, record, samples, classnames, images, facts.get("text_features"))
