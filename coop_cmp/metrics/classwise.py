"""Calibration of every class probability, not only that of the predicted class."""

from __future__ import annotations

import torch
from torch import Tensor

from coop_cmp.metrics.bins import Closed, bin_edges, bin_index, split_starts
from coop_cmp.metrics.samples import Samples


def class_residuals(samples: Samples, n_bins: int, closed: Closed) -> Tensor:
    """Sum of (probability - hit) per class and equal-width bin [C, n_bins].

    A row of probabilities has fewer than n_bins entries above the first inner edge. So the first
    bin is taken as the column sum less those few, and only those few are binned one by one.
    """
    device = samples.labels.device
    edges = bin_edges(n_bins, samples.edge_dtype, device)
    first = float(edges[1])
    residuals = torch.zeros(samples.n_classes, n_bins, dtype=torch.float64, device=device)
    flat = residuals.view(-1)
    for probs, labels in samples.probability_blocks():
        residuals[:, 0] += probs.sum(0, dtype=torch.float64)
        above = probs > first if closed == "right" else probs >= first
        row, column = above.nonzero(as_tuple=True)
        value = probs[row, column].double()
        flat.index_add_(0, column * n_bins + bin_index(value, edges, closed), value)
        flat.index_add_(0, column * n_bins, -value)
        true = probs.gather(1, labels[:, None])[:, 0].double()
        hit = labels * n_bins + bin_index(true, edges, closed)
        flat.index_add_(0, hit, -torch.ones_like(true))
    return residuals


def per_class_ece(residuals: Tensor, n_samples: int) -> Tensor:
    """One-versus-rest ECE of each class [C] from :func:`class_residuals`."""
    return residuals.abs().sum(1) / n_samples


def range_error(samples: Samples, n_bins: int, threshold: float = 0.0) -> float:
    """Mean |accuracy - confidence| over classes and equal-mass ranges of each (Nixon et al. 2019).

    Args:
        samples: The predictions.
        n_bins: Ranges per class; with fewer entries than ranges the empty ones do not count.
        threshold: Only probabilities of at least this much take part: 0 for ACE, 1e-3 for TACE.
    """
    gaps = []
    for index in range(samples.n_classes):
        column = samples.class_column(index)
        kept = column >= threshold
        hits = column[kept & (samples.labels == index)].double()
        gaps.append(_range_gaps(column[kept].double().sort().values, hits, n_bins))
    return torch.cat(gaps).mean().item()


def _range_gaps(values: Tensor, hits: Tensor, n_bins: int) -> Tensor:
    """|share of hits - mean value| of each equal-mass range that is not empty [at most n_bins].

    Args:
        values: All probabilities of the class, ascending [M].
        hits: Those of the samples that belong to it.
        n_bins: How many ranges.
    """
    starts = split_starts(torch.tensor(len(values), device=values.device), n_bins)
    total = torch.cat([values.new_zeros(1), values.cumsum(0)])[starts].diff()
    # Equal values share their hits, so that the order of the samples does not matter: a hit
    # counts in each range for the part of its tied run that lies there.
    low = torch.searchsorted(values, hits)[:, None]
    high = torch.searchsorted(values, hits, right=True)[:, None]
    overlap = (torch.minimum(high, starts[1:]) - torch.maximum(low, starts[:-1])).clamp_min(0)
    hit = (overlap.double() / (high - low)).sum(0)
    size = starts.diff()
    filled = size > 0
    return (total - hit)[filled].abs() / size[filled]
