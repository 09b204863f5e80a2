"""Metrics without bins: they need only the samples in order of confidence."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.metrics.samples import Samples

SMOOTH_GRID = 4096


def ks_error(samples: Samples) -> float:
    """Largest |sum of (confidence - correct) up to any confidence| / N."""
    confidence, correct = samples.ordered
    return ((confidence - correct).cumsum(0).abs().max() / len(samples)).item()


def risk_coverage_curve(samples: Samples) -> tuple[Tensor, Tensor]:
    """Coverage and error rate of the most confident 1, 2, ..., N samples, both [N]."""
    wrong = 1 - samples.ordered[1].flip(0)
    kept = torch.arange(1, len(wrong) + 1, dtype=torch.float64, device=wrong.device)
    return kept / len(wrong), wrong.cumsum(0) / kept


def area_under_risk_coverage(samples: Samples) -> float:
    """Mean over all coverages of the error rate of the samples kept."""
    return risk_coverage_curve(samples)[1].mean().item()


def risk_at_coverage(samples: Samples, coverage: float = 0.8) -> float:
    """Error rate of the most confident ``coverage`` share of the samples."""
    if not 0 < coverage <= 1:
        raise UserError(f"coverage: expected a share above 0 and at most 1, got {coverage!r}")
    # 0.7 * 10 is a hair above 7 in floating point and must not round up to 8.
    kept = max(1, math.ceil(coverage * len(samples) - 1e-9))
    return risk_coverage_curve(samples)[1][kept - 1].item()


def correctness_auroc(samples: Samples) -> float:
    """Chance that a correct sample is more confident than a wrong one; NaN without both kinds."""
    _, correct = samples.ordered
    wrong = 1 - correct
    pairs = correct.sum() * wrong.sum()
    if samples.correct.sum() in (0, len(samples)):
        return math.nan
    # Samples before each one that are wrong; its own share counts half, as ties do.
    below = wrong.cumsum(0) - wrong / 2
    return ((correct * below).sum() / pairs).item()


def smooth_calibration_error(samples: Samples) -> float:
    """Smooth ECE (Blasiok and Nakkiran 2024): the bandwidth that equals its own error.

    The residuals confidence - correct are smoothed over [0, 1] by a Gaussian reflected at both
    ends, and the error is the integral of the absolute result. It falls as the bandwidth grows,
    so there is one fixed point. Smoothing multiplies the cosine series of the residuals.
    """
    left, left_share, right_share = grid_shares(samples)
    nodes = left_share.new_zeros(SMOOTH_GRID + 1)
    nodes.index_add_(0, left, left_share).index_add_(0, left + 1, right_share)
    return smooth_error(nodes)


def grid_shares(samples: Samples) -> tuple[Tensor, Tensor, Tensor]:
    """The node of a grid of [0, 1] left of each sample, and what of its residual is there and at
    the next one, all [N]."""
    residual = (samples.confidence - samples.correct) / len(samples)
    place = samples.confidence.clamp(0, 1) * SMOOTH_GRID
    left = place.floor().clamp_max(SMOOTH_GRID - 1)
    right_share = place - left
    return left.long(), residual * (1 - right_share), residual * right_share


def smooth_error(nodes: Tensor) -> float:
    """The smooth ECE of residuals on the nodes of the grid [SMOOTH_GRID + 1]."""
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
