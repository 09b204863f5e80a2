"""Each term against a slow plain version: one sample and one class at a time, in double precision.

The gradients are compared with finite differences of the plain version.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from coop_cmp.losses import function_of
from coop_cmp.losses.names import TERMS
from coop_cmp.losses.tcpt import moment_distance

N, C, E = 7, 5, 6
Z = np.random.default_rng(3).normal(size=(N, C)) * 4
Z0 = np.random.default_rng(4).normal(size=(N, C))
TEXT, TEXT0 = np.random.default_rng(5).normal(size=(2, C, E)) / 3
Y = np.array([0, 1, 2, 3, 4, 0, 2])
for sample in (0, 1, 2):  # some are correct
    Z[sample, Y[sample]] = Z[sample].max() + 1


def softmax(row: np.ndarray) -> list[float]:
    total = math.fsum(math.exp(z) for z in row)
    return [math.exp(z) / total for z in row]


def mean(values) -> float:
    values = list(values)
    return math.fsum(values) / len(values)


def samples(z: np.ndarray):
    return [(softmax(row), y, row) for row, y in zip(z, Y, strict=True)]


def plain_focal(z, gamma=3.0):
    return mean(-((1 - p[y]) ** gamma) * math.log(p[y]) for p, y, _ in samples(z))


def plain_flsd(z):
    return mean(
        -((1 - p[y]) ** (5 if p[y] < 0.2 else 3)) * math.log(p[y]) for p, y, _ in samples(z)
    )


def plain_ls(z, smoothing=0.05):
    """The smoothed cross-entropy without the plain one, divided by the smoothing."""

    def target(k, y):
        return (1 - smoothing) * (k == y) + smoothing / C

    smoothed = mean(-sum(target(k, y) * math.log(p[k]) for k in range(C)) for p, y, _ in samples(z))
    return (smoothed - mean(-math.log(p[y]) for p, y, _ in samples(z))) / smoothing


def plain_mdca(z):
    return mean(
        abs(mean(p[k] for p, _, _ in samples(z)) - mean(float(y == k) for y in Y)) for k in range(C)
    )


def plain_dca(z):
    confidence = mean(max(p) for p, _, _ in samples(z))
    return abs(confidence - mean(float(row.argmax() == y) for _, y, row in samples(z)))


def plain_mmce(z):
    """As published: the means over pairs, divided by the number of pairs once more."""
    correct = [max(p) for p, y, row in samples(z) if row.argmax() == y]
    wrong = [max(p) for p, y, row in samples(z) if row.argmax() != y]
    n, m = len(correct), len(wrong)
    assert n > 1
    assert m > 1

    def kernel(a, b):
        return math.exp(-abs(a - b) / 0.4)

    both_wrong = mean(a * b * kernel(a, b) for a, b in product(wrong, wrong))
    both_right = mean((1 - a) * (1 - b) * kernel(a, b) for a, b in product(correct, correct))
    mixed = mean((1 - a) * b * kernel(a, b) for a, b in product(correct, wrong))
    squared = both_wrong / (m**2 + 1e-5) + both_right / (n**2 + 1e-5) - 2 * mixed / (n * m + 1e-5)
    return math.sqrt(squared + 1e-10)


def plain_brier(z):
    return mean(sum((p[k] - (k == y)) ** 2 for k in range(C)) for p, y, _ in samples(z))


def plain_zsnorm(z):
    scaled = np.array(
        [
            [(v - min(row)) / (max(row) - min(row)) * (max(z0) - min(z0)) + min(z0) for v in row]
            for row, z0 in zip(z, Z0, strict=True)
        ]
    )
    return mean(-math.log(p[y]) for p, y, _ in samples(scaled))


def plain_zspenalty(z):
    outside = [
        max(0, v - max(z0)) + max(0, min(z0) - v)
        for row, z0 in zip(z, Z0, strict=True)
        for v in row
    ]
    return mean(outside)


def plain_tcpt(z):
    margin = [
        row[y] - max(v for k, v in enumerate(row) if k != y) for row, y in zip(z, Y, strict=True)
    ]
    return -0.1 * np.mean(margin) + 0.01 * np.var(margin) + 5 * plain_moments(TEXT)


def plain_moments(text):
    mean_part = np.sum((text.mean(0) - TEXT0.mean(0)) ** 2)
    return mean_part + np.sum((np.cov(text.T, bias=True) - np.cov(TEXT0.T, bias=True)) ** 2)


PLAIN = {
    "LS": plain_ls,
    "Focal": plain_focal,
    "FLSD": plain_flsd,
    "ECP": lambda z: mean(sum(q * math.log(q) for q in p) for p, _, _ in samples(z)),
    "MbLS": lambda z: mean(max(0, max(row) - v - 10) for row in z for v in row),
    "MDCA": plain_mdca,
    "DCA": plain_dca,
    "MMCE": plain_mmce,
    "Brier": plain_brier,
    "ZSNorm": plain_zsnorm,
    "ZSPenalty": plain_zspenalty,
    "TCPT": plain_tcpt,
}
NEEDS = {
    "zero_shot_logits": (torch.from_numpy(Z0),),
    "text_features": (torch.from_numpy(TEXT), torch.from_numpy(TEXT0)),
}


def call(term: str, logits: torch.Tensor, labels: torch.Tensor | None = None, **settings):
    dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
    tensors = {need: tuple(tensor.to(dtype) for tensor in NEEDS[need]) for need in NEEDS}
    needed = [
        tensors[need][0] if need == "zero_shot_logits" else tensors[need]
        for need in TERMS[term].needs
    ]
    labels = torch.from_numpy(Y) if labels is None else labels
    return function_of(term)(logits, labels, *needed, **settings)


def test_every_published_term_but_cmp_is_here():
    assert {*PLAIN, "CMP"} <= set(TERMS), "those of one's own need no plain version"
    assert len(PLAIN) == 12


@pytest.mark.parametrize("term", PLAIN)
def test_values_and_gradients_are_those_of_the_plain_version(term):
    logits = torch.from_numpy(Z).requires_grad_()
    value = call(term, logits)
    assert value.item() == pytest.approx(PLAIN[term](Z), rel=1e-9)
    assert value.item() != 0
    (gradient,) = torch.autograd.grad(value, logits)
    differences = np.zeros_like(Z)
    for place in np.ndindex(*Z.shape):
        step = np.zeros_like(Z)
        step[place] = 1e-5
        differences[place] = (PLAIN[term](Z + step) - PLAIN[term](Z - step)) / 2e-5
    np.testing.assert_allclose(gradient.numpy(), differences, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_precision_is_computed_in_single(term, dtype):
    logits = torch.from_numpy(Z).to(dtype).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        value = call(term, logits)
    assert value.dtype == torch.float32
    exact = call(term, logits.detach().double())
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    value.backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_values_and_gradients_are_finite_for_flat_and_for_extreme_logits(term, scale):
    logits = (scale * torch.from_numpy(Z).float()).requires_grad_()
    for labels in (logits.argmax(1), logits.argmin(1)):  # all correct, all wrong
        value = call(term, logits, labels)
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_focal_without_focus_is_cross_entropy():
    logits = torch.from_numpy(Z)
    expected = F.cross_entropy(logits, torch.from_numpy(Y))
    torch.testing.assert_close(call("Focal", logits, gamma=0), expected)
    torch.testing.assert_close(call("FLSD", logits, gamma=0, gamma_unsure=0), expected)


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_a_sure_sample_has_a_finite_focal_gradient(gamma):
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    loss = function_of("Focal")(logits, torch.tensor([0]), gamma=gamma)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.isfinite().all()


def test_the_gradient_of_the_moments_is_right_also_for_features_of_each_image():
    text = torch.from_numpy(TEXT).requires_grad_()
    zero_shot = torch.from_numpy(TEXT0)
    assert torch.autograd.gradcheck(lambda t: moment_distance(t, zero_shot), text)
    assert moment_distance(zero_shot, zero_shot) == 0
    images = torch.stack([text, 2 * text])
    expected = (plain_moments(TEXT) + plain_moments(2 * TEXT)) / 2
    assert moment_distance(images, zero_shot).item() == pytest.approx(expected)


def test_one_sample_has_no_variance_of_margins():
    logits = torch.tensor([[1.0, 3.0, 2.0]], requires_grad=True)
    same = torch.zeros(3, 2)
    value = function_of("TCPT")(logits, torch.tensor([1]), (same, same))
    assert value.item() == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("term", "settings", "words"),
    [
        ("Focal", {"gamma": -1}, "gamma must be a finite number >= 0, got -1"),
        ("FLSD", {"threshold": 2}, "threshold must be a finite number >= 0 and <= 1, got 2"),
        ("MbLS", {"margin": math.nan}, "margin must be"),
        ("MMCE", {"width": 0}, "width must be a finite number > 0"),
        ("TCPT", {"beta": "0.1"}, "beta must be"),
    ],
)
def test_wrong_settings_are_refused(term, settings, words):
    with pytest.raises(ValueError, match=words):
        call(term, torch.from_numpy(Z), **settings)


@pytest.mark.parametrize("term", TERMS)
def test_wrong_shapes_are_refused(term):
    with pytest.raises(ValueError, match="labels must be integers of shape"):
        call(term, torch.from_numpy(Z), torch.zeros(3, dtype=torch.long))
    if "zero_shot_logits" in TERMS[term].needs:
        with pytest.raises(ValueError, match=r"zero_shot_logits must have the shape"):
            function_of(term)(torch.from_numpy(Z), torch.from_numpy(Y), torch.zeros(N, 3))


@pytest.mark.parametrize("labels", [Z.argmax(1), Z.argmin(1)])
def test_mmce_of_a_batch_that_is_all_right_or_all_wrong_is_zero(labels):
    logits = torch.tensor(Z, requires_grad=True)
    value = function_of("MMCE")(logits, torch.tensor(labels))
    (gradient,) = torch.autograd.grad(value, logits)
    assert value == 0
    assert not gradient.any()
