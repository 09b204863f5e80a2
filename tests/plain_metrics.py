"""The metrics written as slowly and plainly as their formulas read, to test the fast ones."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import groupby

import numpy as np

Pair = tuple[float, float]


def top_pairs(probs: list[list[float]], labels: list[int]) -> list[Pair]:
    """(confidence, correct) of each sample."""
    pairs = []
    for row, label in zip(probs, labels, strict=True):
        best = max(range(len(row)), key=lambda k: (row[k], -k))
        pairs.append((row[best], 1.0 if best == label else 0.0))
    return pairs


def width_groups(pairs: list[Pair], n_bins: int, closed: str) -> list[list[Pair]]:
    inner = [k / n_bins for k in range(1, n_bins)]
    place = bisect_left if closed == "right" else bisect_right
    groups: list[list[Pair]] = [[] for _ in range(n_bins)]
    for pair in pairs:
        groups[place(inner, pair[0])].append(pair)
    return groups


def share_ties(pairs: list[Pair]) -> list[Pair]:
    """Sorted by the first number; equal ones get the mean of their second numbers."""
    shared = []
    for value, group in groupby(sorted(pairs), key=lambda pair: pair[0]):
        seconds = [second for _, second in group]
        shared += [(value, math.fsum(seconds) / len(seconds))] * len(seconds)
    return shared


def mass_groups(pairs: list[Pair], n_bins: int) -> list[list[Pair]]:
    ordered = share_ties(pairs)
    return [[ordered[i] for i in part] for part in np.array_split(np.arange(len(pairs)), n_bins)]


def whole_groups(pairs: list[Pair], n_bins: int) -> list[list[Pair]]:
    """The same, but equal confidences stay together, in the group of the first of them."""
    groups: list[list[Pair]] = []
    for part in mass_groups(pairs, n_bins):
        seen = {value for group in groups for value, _ in group}
        groups.append([pair for pair in part if pair[0] not in seen])
        for pair in part:
            if pair[0] in seen:
                next(g for g in groups if pair[0] in dict(g)).append(pair)
    return groups


def gaps(groups: list[list[Pair]]) -> list[tuple[int, float, float]]:
    """(size, |mean first - mean second|, mean second) of the groups that are not empty."""
    rows = []
    for group in filter(None, groups):
        confidence = math.fsum(c for c, _ in group) / len(group)
        accuracy = math.fsum(a for _, a in group) / len(group)
        rows.append((len(group), abs(confidence - accuracy), accuracy))
    return rows


def plain_report(
    probs: list[list[float]], labels: list[int], n_bins: int = 10, closed: str = "right"
) -> dict[str, float]:
    """Every metric but smooth_ece."""
    n, classes = len(labels), len(probs[0])
    pairs = top_pairs(probs, labels)
    width = gaps(width_groups(pairs, n_bins, closed))
    mass = gaps(mass_groups(pairs, n_bins))
    whole = gaps(whole_groups(pairs, n_bins))
    noise = [(size, gap**2 - acc * (1 - acc) / max(1, size - 1)) for size, gap, acc in whole]
    nll = -math.fsum(math.log(row[y]) for row, y in zip(probs, labels, strict=True)) / n
    confidence = math.fsum(c for c, _ in pairs) / n
    accuracy = math.fsum(a for _, a in pairs) / n
    return {
        "accuracy": accuracy,
        "confidence": confidence,
        "gap": confidence - accuracy,
        "ece": math.fsum(size * gap for size, gap, _ in width) / n,
        "mce": max(gap for _, gap, _ in width),
        "weighted_mce": max(size * gap for size, gap, _ in width) / n,
        "rmsce": math.sqrt(math.fsum(size * gap**2 for size, gap, _ in width) / n),
        "average_ce": math.fsum(gap for _, gap, _ in width) / len(width),
        "ace": math.fsum(size * gap for size, gap, _ in mass) / n,
        "debiased_l2": math.sqrt(max(0.0, math.fsum(size * g for size, g in noise) / n)),
        "ks": plain_ks(pairs),
        "nll": nll,
        "perplexity": math.exp(nll),
        "brier": plain_brier(probs, labels),
        **plain_selective(pairs),
        "auroc": plain_auroc(pairs),
        "sharpness": math.fsum(classes * c for c, _ in pairs) / n,
        "entropy": -math.fsum(p * math.log(p) for row in probs for p in row if p > 0) / n,
        **plain_classwise(probs, labels, n_bins, closed),
    }


def plain_ks(pairs: list[Pair]) -> float:
    sums = []
    for limit in {c for c, _ in pairs}:
        sums.append(abs(math.fsum(c - a for c, a in pairs if c <= limit)))
    return max(sums) / len(pairs)


def plain_brier(probs: list[list[float]], labels: list[int]) -> float:
    terms = [
        (p - (k == y)) ** 2 for row, y in zip(probs, labels, strict=True) for k, p in enumerate(row)
    ]
    return math.fsum(terms) / len(labels)


def plain_selective(pairs: list[Pair]) -> dict[str, float]:
    ordered = share_ties(pairs)[::-1]
    risks = [
        math.fsum(1 - a for _, a in ordered[:kept]) / kept for kept in range(1, len(ordered) + 1)
    ]
    kept = -(-4 * len(ordered) // 5)
    return {"aurc": math.fsum(risks) / len(risks), "risk_at_80": risks[kept - 1]}


def plain_auroc(pairs: list[Pair]) -> float:
    right = [c for c, a in pairs if a == 1]
    wrong = [c for c, a in pairs if a == 0]
    if not right or not wrong:
        return math.nan
    wins = sum((r > w) + 0.5 * (r == w) for r in right for w in wrong)
    return wins / (len(right) * len(wrong))


def plain_classwise(
    probs: list[list[float]], labels: list[int], n_bins: int, closed: str
) -> dict[str, float]:
    width, nixon, thresholded = [], [], []
    for k in range(len(probs[0])):
        pairs = [(row[k], float(y == k)) for row, y in zip(probs, labels, strict=True)]
        width += [size * gap for size, gap, _ in gaps(width_groups(pairs, n_bins, closed))]
        nixon += [gap for _, gap, _ in gaps(mass_groups(pairs, n_bins))]
        large = [pair for pair in pairs if pair[0] >= 1e-3]
        thresholded += [gap for _, gap, _ in gaps(mass_groups(large, n_bins))]
    return {
        "classwise_ece": math.fsum(width) / len(labels) / len(probs[0]),
        "ace_nixon": math.fsum(nixon) / len(nixon),
        "tace": math.fsum(thresholded) / len(thresholded),
    }


def plain_smooth_ece(pairs: list[Pair], nodes: int = 1000) -> float:
    """Midpoint rule over t, the Gaussian reflected by adding its mirror images."""
    confidence, correct = np.array(pairs).T
    t = (np.arange(nodes)[:, None] + 0.5) / nodes

    def error(bandwidth: float) -> float:
        kernel = np.zeros((nodes, len(pairs)))
        for shift in (-2, 0, 2):
            for mirrored in (confidence, -confidence):
                kernel += np.exp(-(((t - mirrored - shift) / bandwidth) ** 2) / 2)
        kernel /= bandwidth * math.sqrt(2 * math.pi)
        return float(np.abs(kernel @ (confidence - correct)).mean() / len(pairs))

    low, high = 1e-3, 1.0
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    return low
