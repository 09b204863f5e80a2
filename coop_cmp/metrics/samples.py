"""Predictions and labels, checked once and reduced to what the metrics need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from coop_cmp.errors import UserError

Scores = Literal["softmax", "sigmoid"]

# Rows are handled in blocks of about this many numbers, so that the float64 copy of a block stays
# in the processor's cache and costs next to no memory, whatever the size of the test set.
BLOCK_ELEMENTS = 2**18


class Samples:
    """N predictions over C classes with their labels; everything derived is float64.

    The predicted class is the one with the largest value, the first of them if several tie.

    Args:
        probs: Probabilities, or logits with ``from_logits``, [N, C], of any floating dtype.
        labels: Class indices [N].
        from_logits: Whether ``probs`` holds logits. It is never guessed from the values.
        scores: What makes probabilities of logits. Those of a sigmoid do not sum to 1, so that
            metrics of a distribution are undefined.

    Attributes:
        matrix: The probabilities or logits as they were given [N, C].
        confidence: Probability of the predicted class [N].
        predicted: The predicted class [N].
        correct: 1.0 where the predicted class is the label, else 0.0 [N].
        nll: Minus the logarithm of the label's probability [N]; NaN for a sigmoid.

    Raises:
        UserError: If the shapes, labels or values are not those of a classifier's output.
    """

    matrix: Tensor
    confidence: Tensor
    predicted: Tensor
    correct: Tensor
    nll: Tensor
    scores: Scores = "softmax"

    def __init__(
        self, probs: Any, labels: Any, from_logits: bool = False, scores: Scores = "softmax"
    ) -> None:
        if scores == "sigmoid" and not from_logits:
            raise UserError('scores "sigmoid": expected logits (from_logits=True)')
        self.scores = scores
        self.matrix, self.labels = _checked(probs, labels, "logits" if from_logits else "probs")
        self.from_logits = from_logits
        self.confidence, predicted, self.nll = self._table(3, self._top_label)
        self.predicted = predicted.to(torch.int64)
        self.correct = (self.predicted == self.labels).double()

    @classmethod
    def from_outcomes(cls, labels: Any, predicted: Any, confidence: Any, nll: Any) -> Samples:
        """Samples of which only the top label is known, each argument [N].

        They serve every metric and figure that reads no other class's probability.
        """
        samples = object.__new__(cls)
        samples.labels, samples.predicted = (torch.as_tensor(v).long() for v in (labels, predicted))
        samples.confidence, samples.nll = (torch.as_tensor(v).double() for v in (confidence, nll))
        samples.scores = "sigmoid" if samples.nll.isnan().all() else "softmax"
        samples.correct = (samples.predicted == samples.labels).double()
        samples.from_logits = True
        samples.matrix = samples.confidence.new_empty(len(samples.labels), 0)
        return samples

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        return self.matrix.shape[1]

    @property
    def edge_dtype(self) -> torch.dtype:
        """The precision the confidences came in, to which bin edges are rounded.

        A float32 probability of 0.3 then counts as lying on the edge 3/10, as its author meant.
        """
        return torch.float64 if self.from_logits else self.matrix.dtype

    @cached_property
    def ranking(self) -> tuple[Tensor, Tensor, Tensor]:
        """The order of confidences, in which equal ones are a group.

        The confidence of each group in ascending order [G], the place of its last sample in that
        order [G], and the samples in that order [N].
        """
        confidence, order = self.confidence.sort()
        distinct, size = torch.unique_consecutive(confidence, return_counts=True)
        return distinct, size.cumsum(0) - 1, order

    @cached_property
    def spread(self) -> tuple[Tensor, Tensor]:
        """Brier score and entropy (nats) of each sample, both [N]."""
        brier, entropy = self._table(2, self._spread)
        return brier, entropy

    def take(self, rows: Tensor) -> Samples:
        """The samples at the given positions [M]; repeats are allowed."""
        taken = object.__new__(Samples)
        taken.from_logits, taken.scores = self.from_logits, self.scores
        for name in ("matrix", "labels", "predicted", "confidence", "correct", "nll"):
            setattr(taken, name, getattr(self, name)[rows])
        return taken

    def probability_blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Probabilities [B, C] with their labels [B], block after block.

        Given probabilities keep their dtype; those made from logits are float64.
        """
        for rows in self._row_blocks():
            yield self._probabilities(rows), self.labels[rows]

    def class_column(self, index: int) -> Tensor:
        """Probabilities of one class [N]."""
        column = self.matrix[:, index]
        if self.scores == "sigmoid":
            return column.double().sigmoid()
        return (column.double() - self._log_normaliser).exp() if self.from_logits else column

    @cached_property
    def _log_normaliser(self) -> Tensor:
        """Logarithm of the softmax's denominator, for logits [N]."""
        return self.nll + self.matrix.gather(1, self.labels[:, None])[:, 0].double()

    def _table(self, n_values: int, measure: Callable[[slice], Tensor]) -> Tensor:
        """What ``measure`` gives for the rows of each block, as one tensor [n_values, N]."""
        # Made first: results kept one by one would lie between the large temporaries of the blocks
        # and keep their memory from being used again.
        table = torch.empty(n_values, len(self), dtype=torch.float64, device=self.labels.device)
        for rows in self._row_blocks():
            table[:, rows] = measure(rows)
        return table

    def _row_blocks(self) -> Iterator[slice]:
        step = max(1, BLOCK_ELEMENTS // self.n_classes)
        for start in range(0, len(self), step):
            yield slice(start, start + step)

    def _probabilities(self, rows: slice) -> Tensor:
        block = self.matrix[rows]
        if self.scores == "sigmoid":
            return block.double().sigmoid()
        return block.softmax(1, dtype=torch.float64) if self.from_logits else block

    def _spread(self, rows: slice) -> Tensor:
        """Brier score and entropy of the rows [2, B]."""
        block = self._probabilities(rows).double()
        true = block.gather(1, self.labels[rows, None])[:, 0]
        brier = block.square().sum(1) - 2 * true + 1
        return torch.stack([brier, torch.special.entr(block).sum(1)])

    def _top_label(self, rows: slice) -> Tensor:
        """Confidence, predicted class and NLL of the rows [3, B], after checking their values."""
        block, labels = self.matrix[rows], self.labels[rows]
        best, predicted = block.max(1)
        if self.scores == "sigmoid":
            _checked_log_softmax(block, rows.start)
            best = best.double().sigmoid()
            nll = torch.full_like(best, torch.nan)
        elif self.from_logits:
            block = _checked_log_softmax(block, rows.start)
            best = block.gather(1, predicted[:, None])[:, 0].exp()
            nll = -block.gather(1, labels[:, None])[:, 0]
        else:
            _check_probabilities(block, rows.start)
            true = block.gather(1, labels[:, None])[:, 0].double()
            # A probability that its dtype rounded to 0 is not known to be 0: charge the smallest.
            nll = -true.clamp_min(torch.finfo(block.dtype).tiny).log()
        return torch.stack([best.double(), predicted.double(), nll])


def _checked(probs: Any, labels: Any, name: str) -> tuple[Tensor, Tensor]:
    """Both as tensors on one device that has float64, with shapes and label range verified."""
    matrix, labels = torch.as_tensor(probs).detach(), torch.as_tensor(labels).detach()
    if matrix.device.type == "mps":
        matrix = matrix.cpu()
    if not matrix.is_floating_point():
        raise UserError(f"{name}: expected floating-point numbers, got {matrix.dtype}")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise UserError(
            f"{name}: expected shape [N, C] with at least one sample and one class, got "
            f"{list(matrix.shape)}; a binary classifier needs both columns"
        )
    if labels.shape != matrix.shape[:1]:
        raise UserError(
            f"labels: expected shape [{len(matrix)}], one per row of {name}, got "
            f"{list(labels.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise UserError(f"labels: expected integer class indices, got {labels.dtype}")
    labels = labels.to(matrix.device, torch.int64)
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= matrix.shape[1]:
        raise UserError(
            f"labels: expected class indices from 0 to {matrix.shape[1] - 1}, got values from "
            f"{low} to {high}"
        )
    return matrix, labels


def _checked_log_softmax(logits: Tensor, first_row: int) -> Tensor:
    log_probs = logits.log_softmax(1, dtype=torch.float64)
    if not log_probs.amin().isfinite():
        row = int((~log_probs.isfinite()).any(1).nonzero()[0])
        what = (
            "numbers too far apart for a softmax"
            if logits[row].isfinite().all()
            else "NaN or infinity"
        )
        raise UserError(f"logits: expected finite numbers, got {what} in row {first_row + row}")
    return log_probs


def _check_probabilities(block: Tensor, first_row: int) -> None:
    total = block.sum(1)
    # Rounding each entry to the dtype may move a row's sum by its relative precision.
    tolerance = max(1e-3, 4 * torch.finfo(block.dtype).eps)
    # A NaN or an infinity fails the comparison of the sum; only negative entries can hide in it.
    bad = ~((total - 1).abs() <= tolerance)
    if bad.any() or block.amin() < 0:
        bad |= (block < 0).any(1)
        row = int(bad.nonzero()[0])
        raise UserError(
            "probs: expected non-negative rows that sum to 1, but row "
            f"{first_row + row} has smallest value {float(block[row].min()):g} and sum "
            f"{float(total[row]):g}; pass from_logits=True for logits"
        )
