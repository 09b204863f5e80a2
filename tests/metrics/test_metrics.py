"""The metrics against slow plain versions, other libraries and cases worked by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coop_cmp import metrics
from coop_cmp.metrics import METRICS, Samples, calibration_report
from coop_cmp.metrics.panel import measure
from tests.plain_metrics import plain_report, plain_smooth_ece, top_pairs


def made(n=300, classes=7, scale=3.0, seed=0, tempered=0.6):
    """Over-confident predictions: labels are drawn from flatter ones."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, dtype=torch.float64, generator=generator) * scale
    labels = (logits * tempered).softmax(1).multinomial(1, generator=generator)[:, 0]
    return logits, labels


def of_confidence(pairs, classes=12, dtype=torch.float64):
    """Probabilities and labels whose (confidence, correct) pairs are these."""
    probs = torch.empty(len(pairs), classes, dtype=torch.float64)
    for row, (confidence, _) in zip(probs, pairs, strict=True):
        row.fill_((1 - confidence) / (classes - 1))
        row[0] = confidence
    labels = torch.tensor([0 if correct else 1 for _, correct in pairs])
    return probs.to(dtype), labels


def assert_same(report, expected, tolerance=1e-9):
    for key, value in expected.items():
        if math.isnan(value):
            assert math.isnan(report[key]), key
        else:
            assert report[key] == pytest.approx(value, abs=tolerance, rel=tolerance), key


@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize(("n", "classes", "n_bins"), [(300, 7, 10), (97, 2, 15), (6, 4, 10)])
def test_every_metric_equals_its_plain_version(n, classes, n_bins, closed):
    logits, labels = made(n, classes)
    probs = logits.softmax(1)
    expected = plain_report(probs.tolist(), labels.tolist(), n_bins, closed)
    assert {*expected, "smooth_ece"} <= set(METRICS), "those of one's own need no plain version"
    options = {"n_bins": n_bins, "closed": closed, "keys": list(expected)}
    assert_same(calibration_report(probs, labels, **options), expected)
    assert_same(calibration_report(logits, labels, **options, from_logits=True), expected)


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(
        st.tuples(st.lists(st.integers(0, 8), min_size=3, max_size=3), st.integers(0, 2)),
        min_size=1,
        max_size=25,
    ),
    n_bins=st.integers(1, 12),
    closed=st.sampled_from(["right", "left"]),
)
def test_values_full_of_ties_and_edges_equal_the_plain_versions(data, n_bins, closed):
    weights = torch.tensor([row for row, _ in data], dtype=torch.float64) + 1
    probs, labels = weights / weights.sum(1, keepdim=True), torch.tensor([y for _, y in data])
    expected = plain_report(probs.tolist(), labels.tolist(), n_bins, closed)
    assert_same(calibration_report(probs, labels, n_bins, closed, keys=list(expected)), expected)


@pytest.mark.parametrize(("scale", "tempered"), [(3.0, 0.6), (1.0, 2.5), (2.0, 1.0)])
def test_smooth_ece_equals_direct_quadrature(scale, tempered):
    logits, labels = made(100, scale=scale, tempered=tempered)
    probs = logits.softmax(1)
    expected = plain_smooth_ece(top_pairs(probs.tolist(), labels.tolist()))
    assert metrics.smooth_ece(probs, labels) == pytest.approx(expected, abs=2e-5)


def test_an_edge_value_belongs_to_the_side_that_is_closed():
    # Right: {.25, .3} has residual .55 - 1 and {.35} has .35. Left: {.25} and {.3, .35}.
    probs, labels = of_confidence([(0.25, False), (0.3, True), (0.35, False)])
    assert metrics.ece(probs, labels, closed="right") == pytest.approx(0.8 / 3, abs=1e-12)
    assert metrics.ece(probs, labels, closed="left") == pytest.approx(0.6 / 3, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n_bins", [10, 15, 20])
def test_each_edge_is_exact_in_every_precision(dtype, n_bins):
    edges = [k / n_bins for k in range(2, n_bins + 1)]
    probs, labels = of_confidence([(edge, True) for edge in edges], classes=40, dtype=dtype)
    right = metrics.reliability_bins(probs, labels, n_bins, "right").count.tolist()
    assert right == [0.0] + [1.0] * (n_bins - 1)
    left = metrics.reliability_bins(probs, labels, n_bins, "left").count.tolist()
    assert left == [0.0, 0.0] + [1.0] * (n_bins - 3) + [2.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_saturated_confidences_keep_their_weight(dtype):
    probs = torch.tensor([[1.0, 0.0]] * 8, dtype=dtype)
    labels = torch.tensor([0, 1] * 4)
    for closed in ("right", "left"):
        report = calibration_report(probs, labels, closed=closed)
        for key in ("ece", "mce", "weighted_mce", "ace", "rmsce", "ks", "average_ce"):
            assert report[key] == pytest.approx(0.5, abs=1e-12), key
        assert report["smooth_ece"] == pytest.approx(0.5, abs=1e-6)
        assert report["auroc"] == 0.5
        assert math.isfinite(report["nll"])


def test_equal_confidences_are_one_bin_of_the_debiased_error():
    probs, labels = torch.tensor([[1.0, 0.0]] * 10), torch.tensor([0, 1] * 5)
    assert metrics.debiased_l2(probs, labels) == pytest.approx(math.sqrt(0.25 - 0.25 / 9))


def test_half_precision_logits_are_measured_without_saturating():
    logits, labels = made(scale=20.0)
    half = logits.half()
    expected = calibration_report(half.double(), labels, from_logits=True)
    assert_same(calibration_report(half, labels, from_logits=True), expected, 1e-12)
    assert math.isfinite(expected["nll"])


def test_nll_of_logits_is_exact_far_beyond_the_range_of_probabilities():
    logits = torch.tensor([[0.0, 5000.0]])
    report = calibration_report(logits, torch.tensor([0]), from_logits=True)
    assert report["nll"] == 5000.0
    assert math.isfinite(report["perplexity"])


@pytest.mark.parametrize("key", METRICS)
def test_the_order_of_samples_and_classes_does_not_matter(key):
    logits, labels = made(120, 5)
    logits = (logits / 2).round()  # few distinct values, so that confidences tie
    logits[:, 0] += torch.arange(120) % 3 * 1e-3
    logits += torch.arange(5) * 1e-5  # but no ties inside a row
    generator = torch.Generator().manual_seed(1)
    rows = torch.randperm(len(labels), generator=generator)
    columns = torch.randperm(5, generator=generator)
    moved = logits[rows][:, columns]
    moved_labels = columns.argsort()[labels[rows]]
    metric = getattr(metrics, key)
    before = metric(logits, labels, from_logits=True)
    assert metric(moved, moved_labels, from_logits=True) == pytest.approx(before, abs=1e-12)


@pytest.mark.parametrize("n_bins", [10, 15])
def test_torchmetrics_agrees(n_bins):
    from torchmetrics.functional.classification import multiclass_calibration_error

    logits, labels = made(2000, 10)
    probs = logits.float().softmax(1)
    for key, norm in (("ece", "l1"), ("mce", "max"), ("rmsce", "l2")):
        theirs = multiclass_calibration_error(probs, labels, 10, n_bins=n_bins, norm=norm)
        # Their sums are float32.
        assert getattr(metrics, key)(probs, labels, n_bins) == pytest.approx(
            float(theirs), abs=1e-6
        )


def test_netcal_agrees():
    from netcal.metrics import ACE, ECE, MCE

    logits, labels = made(2000, 10)
    probs = logits.softmax(1)
    pair = (probs.numpy(), labels.numpy())
    assert metrics.ece(probs, labels) == pytest.approx(ECE(10).measure(*pair), abs=1e-9)
    assert metrics.mce(probs, labels) == pytest.approx(MCE(10).measure(*pair), abs=1e-9)
    assert metrics.average_ce(probs, labels) == pytest.approx(ACE(10).measure(*pair), abs=1e-9)
    equal_mass = ECE(10, equal_intervals=False).measure(*pair)
    assert metrics.ace(probs, labels) == pytest.approx(equal_mass, abs=1e-9)


def test_scikit_learn_agrees():
    from sklearn.metrics import log_loss, mean_squared_error, roc_auc_score

    logits, labels = made(2000, 10)
    probs = logits.softmax(1)
    confidence, predicted = probs.max(1)
    onehot = np.eye(10)[labels.numpy()]
    report = calibration_report(probs, labels)
    assert report["nll"] == pytest.approx(log_loss(labels, probs), abs=1e-9)
    assert report["brier"] == pytest.approx(10 * mean_squared_error(onehot, probs), abs=1e-9)
    assert report["auroc"] == pytest.approx(
        roc_auc_score(predicted == labels, confidence), abs=1e-9
    )


def test_the_bins_are_returned_as_data_and_give_the_ece():
    probs, labels = of_confidence([(0.95, True), (0.97, False), (0.45, True)])
    bins = metrics.reliability_bins(probs, labels)
    assert bins.count.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 2]
    assert bins.confidence[[4, 9]].tolist() == pytest.approx([0.45, 0.96])
    assert bins.accuracy[[4, 9]].tolist() == [1.0, 0.5]
    assert bins.gap[[4, 9]].tolist() == pytest.approx([-0.55, 0.46])
    assert bins.gap[[0, 5]].isnan().all()
    assert bins.ece == pytest.approx((0.55 + 2 * 0.46) / 3)
    mass = metrics.reliability_bins(probs, labels, 2, equal_mass=True)
    assert mass.count.tolist() == [2, 1]
    assert mass.edges.tolist() == pytest.approx([0.45, 0.97, 0.97])


def test_take_gives_the_metrics_of_those_samples():
    logits, labels = made(60)
    rows = torch.tensor([5, 5, 40, 17, 3, 59, 8])
    taken = Samples(logits, labels, from_logits=True).take(rows)
    direct = Samples(logits[rows], labels[rows], from_logits=True)
    again = Samples(logits, labels, from_logits=True).take(torch.arange(59, -1, -1)).take(59 - rows)
    expected = pytest.approx(measure(direct, METRICS), abs=1e-12)
    assert measure(taken, METRICS) == expected
    assert measure(again, METRICS) == expected


def test_a_probability_on_the_threshold_of_tace_takes_part():
    probs = torch.tensor([[0.001, 0.999]], dtype=torch.float64)
    # Of class 0: |0 - 0.001|; of class 1: |1 - 0.999|. Without the first it would be the second.
    on = metrics.tace(probs, torch.tensor([0]), n_bins=1)
    assert on == pytest.approx((0.999 + 0.999) / 2)
    below = torch.tensor([[0.0009, 0.9991]], dtype=torch.float64)
    assert metrics.tace(below, torch.tensor([0]), n_bins=1) == pytest.approx(0.9991)


def test_metrics_tell_what_they_are(capsys):
    help(metrics.ece)
    shown = capsys.readouterr().out
    assert "ece(probs: " in shown
    assert "Expected calibration error" in shown
    assert "Class indices [N]" in shown
    assert all(getattr(metrics, name).__name__ == name for name in METRICS)


def test_the_package_shows_what_it_offers():
    import coop_cmp

    assert {"load", "cmp_loss", "CMPenalty", "plug", "metrics", "losses"} <= set(dir(coop_cmp))
    assert coop_cmp.metrics.ece is metrics.ece
