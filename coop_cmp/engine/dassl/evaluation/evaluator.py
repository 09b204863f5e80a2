"""What is made of the outputs of a whole split."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor
from yacs.config import CfgNode

from coop_cmp.files import atomic_write

from .build import EVALUATOR_REGISTRY


class EvaluatorBase:
    """``reset``, then ``process`` for every batch, then ``evaluate``."""

    def __init__(self, cfg: CfgNode) -> None:
        self.cfg = cfg

    def reset(self) -> None:
        """Forget all batches."""
        raise NotImplementedError

    def process(self, mo: Tensor, gt: Tensor) -> None:
        """Take one batch: model output and ground truth."""
        raise NotImplementedError

    def evaluate(self) -> OrderedDict[str, Any]:
        """Return the results by name; the first one ranks models."""
        raise NotImplementedError


def confusion_counts(y_true: list[int], y_pred: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Count the pairs of true and predicted label.

    Returns:
        The labels that occur, sorted [K], and the counts [K, K], true label first.
    """
    labels, indices = np.unique(np.concatenate([y_true, y_pred]), return_inverse=True)
    true, pred = indices.reshape(2, -1)
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(counts, (true, pred), 1)
    return labels, counts


def macro_f1(counts: np.ndarray) -> float:
    """Mean F1 score, in percent, of the labels that occur as true labels."""
    true, pred, hits = counts.sum(1), counts.sum(0), counts.diagonal()
    present = true > 0
    return float(100.0 * np.mean(2 * hits[present] / (true + pred)[present]))


@EVALUATOR_REGISTRY.register()
class Classification(EvaluatorBase):
    """Accuracy, error rate, macro F1; on request accuracy per class and the confusion matrix."""

    def __init__(
        self, cfg: CfgNode, lab2cname: dict[int, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(cfg)
        if cfg.TEST.PER_CLASS_RESULT and lab2cname is None:
            raise ValueError("TEST.PER_CLASS_RESULT needs lab2cname, the names of the classes")
        self._lab2cname = lab2cname
        Classification.reset(self)  # not a subclass's: it may need what that sets later

    def reset(self) -> None:
        """Forget all batches."""
        self._y_true: list[int] = []
        self._y_pred: list[int] = []

    def process(self, mo: Tensor, gt: Tensor) -> None:
        """Take scores [N, C] and labels [N]."""
        self._y_true.extend(gt.tolist())
        self._y_pred.extend(mo.argmax(dim=1).tolist())

    def evaluate(self) -> OrderedDict[str, Any]:
        """Print and return the results, in percent."""
        if not self._y_true:
            raise ValueError("evaluate: there are no samples; the test split is empty")
        labels, counts = confusion_counts(self._y_true, self._y_pred)
        total, correct = len(self._y_true), int(counts.trace())
        accuracy = 100.0 * correct / total
        results: OrderedDict[str, Any] = OrderedDict(
            accuracy=accuracy, error_rate=100.0 - accuracy, macro_f1=macro_f1(counts)
        )
        print(
            "=> result\n"
            f"* total: {total:,}\n"
            f"* correct: {correct:,}\n"
            f"* accuracy: {accuracy:.1f}%\n"
            f"* error: {results['error_rate']:.1f}%\n"
            f"* macro_f1: {results['macro_f1']:.1f}%"
        )
        if self.cfg.TEST.PER_CLASS_RESULT:
            results["perclass_accuracy"] = self._print_per_class(labels, counts)
        if self.cfg.TEST.COMPUTE_CMAT:
            self._save_confusion_matrix(counts)
        return results

    def _print_per_class(self, labels: np.ndarray, counts: np.ndarray) -> float:
        assert self._lab2cname is not None
        print("=> per-class result")
        accuracies = []
        for label, total, correct in zip(labels, counts.sum(1), counts.diagonal(), strict=True):
            if not total:  # only predicted
                continue
            accuracies.append(100.0 * correct / total)
            print(
                f"* class: {label} ({self._lab2cname[label]})\ttotal: {total:,}\t"
                f"correct: {correct:,}\tacc: {accuracies[-1]:.1f}%"
            )
        mean = float(np.mean(accuracies))
        print(f"* average: {mean:.1f}%")
        return mean

    def _save_confusion_matrix(self, counts: np.ndarray) -> None:
        """Save the matrix [K, K], each row divided by its sum, as a tensor."""
        rows = np.maximum(counts.sum(axis=1, keepdims=True), 1)
        path = os.path.join(self.cfg.OUTPUT_DIR, "cmat.pt")
        with atomic_write(path) as file:
            torch.save(torch.from_numpy(counts / rows), file)
        print(f"Confusion matrix is saved to {path}")
