"""Metrics of the samples in order of confidence, without bins: risk and coverage, smooth ECE."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from coop_cmp.metrics.samples import Samples

SMOOTH_GRID = 4096


def risk_coverage_curve(samples: Samples) -> tuple[Tensor, Tensor]:
    """Return coverage and error rate of the most confident 1, 2, ..., N samples, both [N]."""
    _, ends, order = samples.ranking
    correct = samples.correct[order].cumsum(0)[ends]
    size = ends.diff(prepend=ends.new_tensor([-1]))
    # Samples of equal confidence share their mean correctness: their order does not matter.
    share = correct.diff(prepend=correct.new_zeros(1)) / size
    wrong = 1 - share.repeat_interleave(size).flip(0)
    kept = torch.arange(1, len(wrong) + 1, dtype=torch.float64, device=wrong.device)
    return kept / len(wrong), wrong.cumsum(0) / kept


def grid_shares(samples: Samples) -> tuple[Tensor, Tensor, Tensor]:
    """Return the node of a grid of [0, 1] left of each sample, and what of its residual
    confidence - correct is there and at the next one, all [N]."""
    residual = samples.confidence - samples.correct
    place = samples.confidence.clamp(0, 1) * SMOOTH_GRID
    left = place.floor().clamp_max(SMOOTH_GRID - 1)
    right_share = place - left
    return left.long(), residual * (1 - right_share), residual * right_share


def smooth_error(nodes: Tensor) -> float:
    """Compute the smooth ECE (Blasiok and Nakkiran 2024): the bandwidth that equals its own error.

    The residuals confidence - correct are smoothed over [0, 1] by a Gaussian reflected at both
    ends, and the error is the integral of the absolute result. It falls as the bandwidth grows,
    so there is one fixed point. Smoothing multiplies the cosine series of the residuals.

    Args:
        nodes: Mean residuals on the nodes of the grid [SMOOTH_GRID + 1].
    """
    # Mirrored about 1, the grid is a period of an even function; the two ends, which mirror onto
    # themselves, hold both halves of their mass.
    mirrored = torch.cat([nodes[:1] * 2, nodes[1:-1], nodes[-1:] * 2, nodes[1:-1].flip(0)])
    series = torch.fft.rfft(mirrored)
    order = torch.arange(len(series), dtype=torch.float64, device=series.device)

    def error(bandwidth: float) -> float:
        smoothed = series * torch.exp(-((math.pi * bandwidth * order) ** 2) / 2)
        values = torch.fft.irfft(smoothed, n=2 * SMOOTH_GRID)[: SMOOTH_GRID + 1].abs()
        return (values.sum() - (values[0] + values[-1]) / 2).item()

    return _root(lambda bandwidth: error(bandwidth) - bandwidth)


def _root(function: Callable[[float], float]) -> float:
    """Where a function on [0, 1] that falls at least as fast as -x crosses zero.

    Regula falsi in the Illinois variant. The slope makes the function's value bound the error.
    """
    low, high = 0.0, 1.0
    at_low, at_high = function(low), function(high)
    middle, value = low, at_low
    while abs(value) > 1e-10:
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        before, value = value, function(middle)
        same_side = before * value > 0
        # An end that stays twice counts half, or it could stay for ever.
        if value > 0:
            low, at_low, at_high = middle, value, at_high / (2 if same_side else 1)
        else:
            high, at_high, at_low = middle, value, at_low / (2 if same_side else 1)
    return middle
