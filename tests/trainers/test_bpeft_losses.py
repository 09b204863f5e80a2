"""Evidential losses and predictions against closed forms, finite differences and plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Dirichlet, kl_divergence

from coop_cmp.trainers.bpeft import (
    correct_evidence,
    incorrect_evidence,
    joined_logits,
    likelihood_loss,
    predict,
    strengths,
    vacuity,
    vacuity_of_logits,
)


@pytest.fixture
def outputs() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.randn(6, 4, dtype=torch.float64, generator=generator)


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.tensor([0, 1, 2, 3, 0, 2])


def test_the_likelihood_is_the_mean_of_the_dirichlet_at_the_label(outputs, labels):
    for row, label, loss in zip(outputs, labels, likelihood_loss(outputs, labels), strict=True):
        mean = Dirichlet(row.exp() + 1).mean
        assert loss.item() == pytest.approx(-math.log(mean[label].item()))


def test_incorrect_evidence_is_the_divergence_from_the_flat_distribution(outputs, labels):
    losses = incorrect_evidence(outputs, labels)
    for row, label, loss in zip(outputs, labels, losses, strict=True):
        alpha = row.exp() + 1
        alpha[label] = 1
        expected = kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones_like(alpha)))
        assert loss.item() == pytest.approx(expected.item())
    nothing_wrong = torch.full((1, 3), -40.0, dtype=torch.float64)
    nothing_wrong[0, 1] = 5
    assert incorrect_evidence(nothing_wrong, torch.tensor([1])).item() == pytest.approx(0)


@pytest.mark.parametrize("loss", [likelihood_loss, incorrect_evidence])
def test_gradients_are_finite_differences(loss, outputs, labels):
    assert torch.autograd.gradcheck(lambda o: loss(o, labels), outputs.requires_grad_())


def test_correct_evidence_pulls_up_the_true_output_where_it_is_negative_and_nothing_else(
    outputs, labels
):
    outputs.requires_grad_()
    (gradient,) = torch.autograd.grad(correct_evidence(outputs, labels).sum(), outputs)
    for n, label in enumerate(labels.tolist()):
        alpha = [math.exp(o) + 1 for o in outputs[n].tolist()]
        expected = [0.0] * 4
        if outputs[n, label] < 0:
            expected[label] = -4 / sum(alpha)
        assert gradient[n].tolist() == pytest.approx(expected)
    assert (gradient != 0).sum() > 0


def test_no_evidence_is_full_vacuity_and_much_is_none():
    assert vacuity(torch.full((3,), -50.0)).item() == pytest.approx(1)
    assert vacuity(torch.tensor([50.0, 0.0, 0.0])).item() == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize(("exponent", "weight"), [(1.0, 0.0), (1.5, 100.0), (2.0, 3.0)])
def test_the_base_rate_adjustment_follows_its_formula_and_keeps_the_order(
    exponent, weight, outputs
):
    adjusted = predict(outputs, exponent, weight)
    for row, got in zip(outputs.exp().tolist(), adjusted, strict=True):
        least = min(row)
        alpha = [e + (weight or 4) * ((e - least) / least) ** exponent for e in row]
        assert got.tolist() == pytest.approx([a / sum(alpha) for a in alpha])
    assert torch.equal(adjusted.argsort(dim=1), outputs.argsort(dim=1))


def test_accuracy_stays_and_confidence_rises_by_the_adjustment():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(4000, 100, generator=generator)
    plain, adjusted = predict(outputs), predict(outputs, 1.5, 100.0)
    assert torch.equal(plain.argmax(1), adjusted.argmax(1))
    assert adjusted.amax(1).mean() > outputs.softmax(1).amax(1).mean() > plain.amax(1).mean()


def test_a_heavy_adjustment_is_a_fixed_temperature():
    """Where it outweighs the evidence, and the least evidence is small: softmax of m times o."""
    outputs = torch.randn(50, 20, dtype=torch.float64)
    outputs[:, 0] = -30.0
    expected = (1.5 * outputs).softmax(1)
    torch.testing.assert_close(predict(outputs, 1.5, 1e9), expected, atol=1e-6, rtol=0)


def test_equal_evidence_stays_equal():
    assert predict(torch.full((2, 5), 3.0), 1.5).tolist() == [[pytest.approx(0.2)] * 5] * 2


def test_logits_of_an_ensemble_hold_the_mean_prediction_and_the_mean_vacuity():
    generator = torch.Generator().manual_seed(0)
    members = 3 * torch.randn(3, 7, 5, generator=generator)
    for exponent in (0.0, 1.5):
        logits = joined_logits(members, exponent)
        mean = torch.stack([predict(member, exponent) for member in members]).mean(0)
        torch.testing.assert_close(logits.softmax(-1), mean)
        scores = torch.stack([5 / (member.exp() + 1).sum(-1) for member in members]).mean(0)
        torch.testing.assert_close(vacuity_of_logits(logits), scores)
    alone = joined_logits(members[:1])
    torch.testing.assert_close(alone, strengths(members[0]).log())


def test_the_largest_outputs_give_finite_losses_and_predictions():
    extreme = torch.tensor([[10.0, -10.0, 10.0], [-10.0, -10.0, -10.0]])
    labels = torch.tensor([1, 0])
    for exponent in (0.0, 1.5, 3.0):
        assert joined_logits(extreme[None], exponent).isfinite().all()
    for loss in (likelihood_loss, incorrect_evidence, correct_evidence):
        assert loss(extreme, labels).isfinite().all()
