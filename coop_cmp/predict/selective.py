"""Selective prediction: answer where the model is sure enough, say "don't know" elsewhere.

Geifman and El-Yaniv, "Selective Classification for Deep Neural Networks", NeurIPS 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from coop_cmp.errors import UserError

SURE = 0.95


@dataclass(frozen=True)
class Threshold:
    """A confidence threshold, and its outcome on labelled images.

    Attributes:
        value: The least confidence of an answer; infinite if no answer is good enough.
        wrong: Wrong answers among the labelled images.
        answered: How many of them get an answer.
        total: How many there are.
    """

    value: float
    wrong: int
    answered: int
    total: int

    @property
    def at_most(self) -> float:
        """The error of answers is at most this, with probability 0.95 (Clopper and Pearson).

        It is for a threshold that was fixed before; one chosen on the same images is a bit worse.
        """
        if self.wrong >= self.answered:
            return 1.0
        return float(beta.ppf(SURE, self.wrong + 1, self.answered - self.wrong))

    def __str__(self) -> str:
        if math.isinf(self.value):
            return f"no threshold keeps that error on {self.total} validation images"
        return (
            f"threshold: {self.value:.1%} confidence; on {self.total} validation images "
            f"{self.answered} answers, {self.wrong} of them wrong; the error of answers is at most "
            f"{self.at_most:.1%} with probability {SURE:.0%}"
        )


def choose_threshold(confidence: np.ndarray, correct: np.ndarray, error: float) -> Threshold:
    """Choose the lowest threshold at which at most a share ``error`` of the answers is wrong.

    Args:
        confidence: The largest probability of each labelled image, shape [N].
        correct: Whether that class is the label, shape [N].
        error: From 0 to 1.
    """
    confidence, correct = np.asarray(confidence), np.asarray(correct).astype(bool)
    if confidence.ndim != 1 or confidence.shape != correct.shape or not len(confidence):
        raise UserError(
            f"expected confidence and correct of the same shape [N], got {confidence.shape} and "
            f"{correct.shape}"
        )
    if not 0 <= error <= 1:
        raise UserError(f"the wanted error must be a share from 0 to 1, got {error}")
    order = np.argsort(-confidence, kind="stable")
    values, wrong = confidence[order], np.cumsum(~correct[order])
    answered = np.arange(1, len(values) + 1)
    # Equal confidences are answered together or not at all.
    whole = np.append(values[1:] < values[:-1], True)
    fitting = np.flatnonzero(whole & (wrong <= error * answered))
    if not len(fitting):
        return Threshold(math.inf, 0, 0, len(values))
    last = fitting[-1]
    return Threshold(float(values[last]), int(wrong[last]), int(answered[last]), len(values))
