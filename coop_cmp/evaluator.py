"""The Dassl evaluator that reports calibration beside accuracy and stores a run's results."""

from __future__ import annotations

import math
import platform
import time
from collections import OrderedDict
from importlib import metadata
from pathlib import Path
from typing import Any

import dassl
import torch
from dassl.evaluation.build import EVALUATOR_REGISTRY
from dassl.evaluation.evaluator import Classification
from torch import Tensor

import coop_cmp
from coop_cmp.metrics import calibration_report, convention, show
from coop_cmp.metrics.bins import check_bins
from coop_cmp.results import PREDICTIONS_FILE, RESULTS_FILE, write_predictions, write_results

SHOWN = ("ece", "ace", "mce", "weighted_mce", "nll")


@EVALUATOR_REGISTRY.register()
class CalibrationEvaluator(Classification):
    """Accuracy as Dassl reports it, then calibration of the whole test set, pooled.

    ``evaluate`` writes ``results.json`` and ``predictions.npz`` into ``cfg.OUTPUT_DIR`` when the
    split under test is ``cfg.TEST.SPLIT``.

    Attributes:
        split: The split under test; None, where the engine does not say, counts as the test split.
        facts: What only the trainer knows, to be stored with the results: ``weights`` (str),
            ``sizes`` and ``seconds`` (dicts), ``notes`` (list of str).
    """

    def __init__(self, cfg: Any, lab2cname: dict[int, str] | None = None, **kwargs: Any) -> None:
        self.split: str | None = None
        self.facts: dict[str, Any] = {}
        self.n_bins = _lookup(cfg, "TEST.N_BINS", 10)
        self.closed = _lookup(cfg, "TEST.BIN_CLOSED", "right")
        check_bins(self.n_bins, self.closed)  # before the training, not after it
        self._created = self._started = time.monotonic()
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
        metrics = calibration_report(logits, labels, self.n_bins, self.closed, from_logits=True)
        for key in SHOWN:
            print(f"* {key}: {show(key, metrics[key])}")
            results[key] = metrics[key] if key == "nll" else 100 * metrics[key]
        print(f"calibration: {convention(self.n_bins, self.closed)}; nll in nats")
        split = self.split or self.cfg.TEST.SPLIT
        if self.cfg.OUTPUT_DIR and split == self.cfg.TEST.SPLIT:
            folder = Path(self.cfg.OUTPUT_DIR)
            names = [self._names.get(i, str(i)) for i in range(logits.shape[1])]
            write_predictions(folder / PREDICTIONS_FILE, logits, labels, names)
            # The results come last: a directory that has them has everything.
            write_results(folder / RESULTS_FILE, self._record(split, metrics, logits.shape))
        return results

    def _record(self, split: str, metrics: dict[str, float], shape: torch.Size) -> dict[str, Any]:
        cfg, now = self.cfg, time.monotonic()
        trainer = cfg.TRAINER.NAME
        is_twin = trainer.endswith("_CMP")
        weights = _lookup(cfg, "MODEL.BACKBONE.WEIGHTS", "")
        sizes = {"classes": shape[1], "test": shape[0]}
        seconds = {"total": now - self._created, "test": now - self._started}
        return {
            "trainer": trainer,
            "dataset": cfg.DATASET.NAME,
            "backbone": cfg.MODEL.BACKBONE.NAME,
            "weights": self.facts.get("weights", weights),
            "shots": _lookup(cfg, "DATASET.NUM_SHOTS", -1),
            "seed": cfg.SEED,
            "subsample": _lookup(cfg, "DATASET.SUBSAMPLE_CLASSES", "all"),
            "lambda": _lookup(cfg, "TRAINER.CMP.LAMBDA", None) if is_twin else None,
            "form": _lookup(cfg, "TRAINER.CMP.FORM", None) if is_twin else None,
            "split": split,
            "metrics": {k: None if math.isnan(v) else v for k, v in metrics.items()},
            "bins": {"n_bins": self.n_bins, "closed": self.closed},
            "sizes": {**sizes, **self.facts.get("sizes", {})},
            "seconds": {**seconds, **self.facts.get("seconds", {})},
            "versions": _versions(),
            "notes": list(self.facts.get("notes", [])),
        }


def _lookup(cfg: Any, path: str, default: Any) -> Any:
    """``cfg.A.B`` for the path "A.B", or the default where a checkout's config has no such node."""
    for name in path.split("."):
        cfg = getattr(cfg, name, None)
        if cfg is None:
            return default
    return cfg


def _versions() -> dict[str, str]:
    versions = {
        "coop_cmp": coop_cmp.__version__,
        "python": platform.python_version(),
        "dassl": str(getattr(dassl, "__version__", "unknown")),
    }
    for name, package in {
        "torch": "torch",
        "numpy": "numpy",
        "open_clip": "open_clip_torch",
    }.items():
        try:
            versions[name] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
