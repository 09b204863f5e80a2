"""Metrics without bins: they need only the samples in order of confidence."""

from __future__ import annotations

import math

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
    so bisection finds the fixed point. Smoothing multiplies the cosine series of the residuals.
    """
    series = _cosine_series(samples)
    order = torch.arange(len(series), dtype=torch.float64, device=series.device)

    def error(bandwidth: float) -> float:
        smoothed = series * torch.exp(-((math.pi * bandwidth * order) ** 2) / 2)
        values = torch.fft.irfft(smoothed, n=2 * SMOOTH_GRID)[: SMOOTH_GRID + 1].abs()
        return (values.sum() - (values[0] + values[-1]) / 2).item()

    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    return high if low else 0.0


def _cosine_series(samples: Samples) -> Tensor:
    """Cosine series of the mean residual on a grid of [0, 1], each sample shared by two nodes."""
    residual = (samples.confidence - samples.correct) / len(samples)
    place = samples.confidence.clamp(0, 1) * SMOOTH_GRID
    left = place.floor().clamp_max(SMOOTH_GRID - 1)
    right_share = place - left
    nodes = residual.new_zeros(SMOOTH_GRID + 1)
    nodes.index_add_(0, left.long(), residual * (1 - right_share))
    nodes.index_add_(0, left.long() + 1, residual * right_share)
    # Mirrored about 1, the grid is a period of an even function; the two ends, which mirror onto
    # themselves, hold both halves of their mass.
    mirrored = torch.cat([nodes[:1] * 2, nodes[1:-1], nodes[-1:] * 2, nodes[1:-1].flip(0)])
    return torch.fft.rfft(mirrored)
