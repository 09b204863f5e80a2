"""Metrics of weighted samples are those of the samples drawn so often, one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from coop_cmp.metrics import METRICS, Samples, Weighted, bootstrap, resample
from coop_cmp.metrics.panel import measure
from coop_cmp.metrics.resample import REPLICATES, draws


def drawn(size: int, classes: int, ties: bool) -> Samples:
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(size, classes, generator=generator) * 2
    labels = torch.randint(classes, (size,), generator=generator)
    return Samples(logits.round() if ties else logits, labels, from_logits=True)


@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("size", [1, 7, 200])
def test_weights_give_what_the_drawn_samples_give(size, ties, closed):
    samples = drawn(size, 4, ties)
    rows = [torch.arange(size), *(torch.randint(size, (size + k,)) for k in range(8))]
    weights = torch.stack([r.bincount(minlength=size) for r in rows]).double()
    weighted = Weighted(samples, 5, closed, weights)
    found = {name: metric.function(weighted) for name, metric in METRICS.items()}
    for k, row in enumerate(rows):
        expected = measure(samples.take(row), METRICS, 5, closed)
        values = {name: value[k].item() for name, value in found.items()}
        assert values == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)


def test_nothing_drawn_is_no_value():
    counts = np.array([[0, 0, 0], [1, 2, 0]], dtype=np.uint8)
    for name, values in resample.resample(drawn(3, 2, False), list(METRICS), counts).items():
        assert math.isnan(values[0]), name
        assert math.isfinite(values[1]) or name == "auroc", name


def test_blocks_of_resamples_do_not_change_the_interval(monkeypatch):
    samples, other = drawn(60, 3, False), drawn(60, 3, True)
    other.labels, other.correct = samples.labels, samples.correct
    keys = ["ece", "tace", "nll", "auroc"]
    whole = bootstrap(samples, keys, minus=other, resamples=40)
    assert resample.BLOCK_ELEMENTS > 180
    monkeypatch.setattr(resample, "BLOCK_ELEMENTS", 180)
    parts = bootstrap(samples, keys, minus=other, resamples=40)
    for key, interval in whole.items():
        ends = (interval.value, interval.low, interval.high)
        assert ends == pytest.approx((parts[key].value, parts[key].low, parts[key].high))
        assert all(map(math.isfinite, ends))


def test_an_image_is_drawn_alike_whatever_test_set_it_is_in():
    random = np.random.default_rng(0)
    images = random.integers(2**63, size=3000).astype(np.uint64)
    counts = draws(images)
    assert counts.shape == (REPLICATES, 3000)
    assert np.array_equal(draws(images[::-3]), counts[:, ::-3])
    assert not np.array_equal(draws(images, seed=1), counts)
    # Poisson(1): mean and variance 1, as often 0 as 1
    assert counts.mean() == pytest.approx(1, abs=0.003)
    assert counts.var() == pytest.approx(1, abs=0.006)
    assert (counts == 0).mean() == pytest.approx(math.exp(-1), abs=0.002)
    assert (counts == 1).mean() == pytest.approx(math.exp(-1), abs=0.002)
    means = counts[:, :1000].mean(1)
    assert means.std() == pytest.approx(1000**-0.5, rel=0.1), "images are drawn independently"
    assert abs(np.corrcoef(counts[:, 0], counts[:, 1])[0, 1]) < 0.1
    assert abs(np.corrcoef(counts[0], counts[1])[0, 1]) < 0.06
