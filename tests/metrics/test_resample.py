"""Metrics of weighted samples are those of the samples drawn so often, one by one."""

from __future__ import annotations

import math

import pytest
import torch

from coop_cmp.metrics.bootstrap import BLOCK_ELEMENTS, bootstrap
from coop_cmp.metrics.panel import CLASS_METRICS, METRICS
from coop_cmp.metrics.resample import WEIGHTED, Resampled
from coop_cmp.metrics.samples import Samples


def drawn(size: int, classes: int, ties: bool) -> Samples:
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(size, classes, generator=generator) * 2
    labels = torch.randint(classes, (size,), generator=generator)
    return Samples(logits.round() if ties else logits, labels, from_logits=True)


def test_every_top_label_metric_has_a_weighted_form():
    assert set(METRICS) - WEIGHTED == set(CLASS_METRICS)


@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("size", [1, 7, 200])
def test_weights_give_what_the_drawn_samples_give(size, ties, closed):
    samples = drawn(size, 4, ties)
    rows = [torch.arange(size), *(torch.randint(size, (size,)) for _ in range(8))]
    weights = torch.stack([r.bincount(minlength=size) for r in rows]).double()
    names = sorted(WEIGHTED)
    found = Resampled(samples, 5, closed)(weights, names)
    for row, values in zip(rows, found.tolist(), strict=True):
        taken = samples.take(row)
        for name, value in zip(names, values, strict=True):
            expected = METRICS[name](taken, 5, closed)
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True), name


def test_blocks_of_resamples_do_not_change_the_interval(monkeypatch):
    import sys

    samples, other = drawn(60, 3, False), drawn(60, 3, True)
    other.labels, other.correct = samples.labels, samples.correct
    keys = ["ece", "tace", "nll", "auroc"]
    whole = bootstrap(samples, keys, minus=other, resamples=40)
    monkeypatch.setattr(sys.modules["coop_cmp.metrics.bootstrap"], "BLOCK_ELEMENTS", 180)
    assert BLOCK_ELEMENTS > 180
    parts = bootstrap(samples, keys, minus=other, resamples=40)
    for key, interval in whole.items():
        ends = (interval.value, interval.low, interval.high)
        assert ends == pytest.approx((parts[key].value, parts[key].low, parts[key].high))
        assert all(map(math.isfinite, ends))
