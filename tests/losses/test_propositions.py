"""What docs/penalty.md states: the paper's four propositions, and where its text disagrees."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from coop_cmp import cmp_loss

EPS = 1e-10


def wrong_batch(seed: int, scale: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [200, 7] in double precision and labels [200], every sample misclassified."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(200, 7, generator=generator, dtype=torch.float64)
    rank = torch.randint(1, 7, (200, 1), generator=generator)
    labels = logits.argsort(1, descending=True).gather(1, rank).squeeze(1)
    return logits.requires_grad_(), labels


def gradient(logits: torch.Tensor, labels: torch.Tensor, form: str, lam: float | None = None):
    """Per-sample gradient [N, C] of the penalty, or of cross-entropy plus ``lam`` times it."""
    loss = cmp_loss(logits, labels, form, reduction="sum")
    if lam is not None:
        loss = F.cross_entropy(logits, labels, reduction="sum") + lam * loss
    return torch.autograd.grad(loss, logits)[0]


def of_true(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return values.gather(1, labels[:, None]).squeeze(1)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 20))
def test_proposition_1_the_ratio_is_below_one_over_the_number_of_competitors(seed, scale):
    logits, labels = wrong_batch(seed, scale)
    competitors = (logits > of_true(logits, labels)[:, None]).sum(1)
    ratios = cmp_loss(logits, labels, reduction="none")
    assert (ratios > 0).all()
    assert (ratios < 1 / competitors).all()


def test_proposition_2_correct_samples_cost_nothing_though_equation_2_says_otherwise():
    probs = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
    label = torch.tensor([0])
    competitors = (probs * (probs > probs[:, :1])).sum()
    as_printed = probs[0, 0] / (competitors + EPS)
    assert as_printed > 1e9
    for form in ("ratio", "log"):
        assert cmp_loss(probs.log(), label, form) == 0
        assert cmp_loss(probs.log(), label + 1, form) > 0


def test_the_ratio_jumps_where_a_sample_turns_correct_and_the_log_form_does_not():
    step = 1e-6
    logits = torch.tensor([[-step, 0.0], [step, 0.0]], dtype=torch.float64)
    labels = torch.zeros(2, dtype=torch.long)
    before, after = cmp_loss(logits, labels, reduction="none")
    assert before > 1 - 2 * step
    assert after == 0
    before, after = cmp_loss(logits, labels, "log", reduction="none")
    assert before < 2 * step
    assert after == 0


@pytest.mark.parametrize("seed", range(3))
def test_proposition_3_no_component_of_the_gradient_exceeds_one(seed):
    logits, labels = wrong_batch(seed)
    ratios = cmp_loss(logits, labels, reduction="none").detach()
    ratio, log = (gradient(logits, labels, form) for form in ("ratio", "log"))
    assert ratio.abs().max() < 1
    assert log.abs().max() <= 1
    torch.testing.assert_close(ratio.abs().sum(1), 2 * ratios)
    torch.testing.assert_close(log.abs().sum(1), torch.full((200,), 2.0, dtype=torch.float64))
    zero = torch.zeros(200, dtype=torch.float64)
    torch.testing.assert_close(ratio.sum(1), zero)  # mass is moved, not made
    torch.testing.assert_close(log.sum(1), zero)


@pytest.mark.parametrize("form", ["ratio", "log"])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_gradient_is_at_most_twice_as_large_as_that_of_cross_entropy(form, scale):
    """In L1: 2 r or 2 against 2 (1 - P(y)), which is above 1 where the sample is wrong."""
    logits, labels = wrong_batch(0)
    logits = (logits.detach() * scale).requires_grad_()
    penalty = gradient(logits, labels, form).abs().sum(1)
    cross_entropy = F.cross_entropy(logits, labels, reduction="sum")
    (pull,) = torch.autograd.grad(cross_entropy, logits)
    assert (penalty < 2 * pull.abs().sum(1)).all()


def test_proposition_3_the_ratios_gradient_decays_with_the_gap_and_the_log_forms_does_not():
    gaps = torch.arange(1.0, 30, dtype=torch.float64)
    logits = torch.stack([-gaps, torch.zeros_like(gaps)], 1).requires_grad_()
    labels = torch.zeros(len(gaps), dtype=torch.long)
    pull = gradient(logits, labels, "ratio")[:, 0]
    torch.testing.assert_close(pull, torch.exp(-gaps), rtol=1e-8, atol=0)
    torch.testing.assert_close(gradient(logits, labels, "log")[:, 0], -torch.ones_like(gaps))


def test_proposition_3_the_printed_derivative_is_not_the_derivative():
    probs = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    true, mass = 0.2, 0.8
    as_printed = true * (1 - true) * (mass - true) / mass**2
    logits = probs.log().requires_grad_()
    actual = gradient(logits, torch.tensor([0]), "ratio")[0, 0].item()
    assert as_printed == pytest.approx(0.15)
    assert actual == pytest.approx(true / mass)  # r itself: 0.25
    by_differences = [
        cmp_loss(probs.log() + torch.tensor([[h, 0.0, 0.0]]), torch.tensor([0])).item()
        for h in (1e-6, -1e-6)
    ]
    assert (by_differences[0] - by_differences[1]) / 2e-6 == pytest.approx(actual, rel=1e-6)


def test_proposition_4_the_log_form_is_never_negative_though_the_appendix_form_can_be():
    ratio = 1 - 1e-12  # a near miss
    assert -math.log(ratio + EPS) < 0
    logits = torch.tensor([[math.log(ratio), 0.0]], dtype=torch.float64)
    assert cmp_loss(logits, torch.tensor([0]), "log") > 0
    for seed in range(3):
        assert (cmp_loss(*wrong_batch(seed), "log", reduction="none") > 0).all()


def test_proposition_4_gradients_of_the_sum_are_bounded_but_the_log_forms_value_is_not():
    for seed in range(3):
        logits, labels = wrong_batch(seed, scale=50)
        for form in ("ratio", "log"):
            both = gradient(logits, labels, form, lam=0.7)
            plain = gradient(logits, labels, form, lam=0.0)
            own = gradient(logits, labels, form)
            assert (both.norm(dim=1) <= plain.norm(dim=1) + 0.7 * own.norm(dim=1) + 1e-12).all()
            assert own.norm(dim=1).max() <= math.sqrt(2) + 1e-12
    far_off = torch.tensor([[-1e4, 0.0]], dtype=torch.float64)
    assert cmp_loss(far_off, torch.tensor([0]), "log").item() == pytest.approx(1e4)


@pytest.mark.parametrize(("form", "direction"), [("ratio", -1), ("log", 1)])
def test_a_step_against_the_ratio_lowers_the_true_class_and_against_the_log_form_raises_it(
    form, direction
):
    logits, labels = wrong_batch(0)
    stepped = logits - 0.01 * gradient(logits, labels, form)
    change = of_true(stepped.softmax(1), labels) - of_true(logits.softmax(1), labels)
    assert (direction * change > 0).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 20), lam=st.floats(0, 0.5))
def test_up_to_lambda_one_half_the_sum_still_raises_the_true_logit(seed, scale, lam):
    logits, labels = wrong_batch(seed, scale)
    assert (of_true(gradient(logits, labels, "ratio", lam), labels) < 0).all()
    eased = of_true(gradient(logits, labels, "ratio", 0.5), labels)
    plain = of_true(gradient(logits, labels, "ratio", 0.0), labels)
    torch.testing.assert_close(eased - plain, 0.5 * cmp_loss(logits, labels, reduction="none"))


def test_beyond_lambda_one_half_a_near_miss_is_pushed_down():
    logits = torch.tensor([[-1e-3, 0.0]], dtype=torch.float64, requires_grad=True)
    assert gradient(logits, torch.tensor([0]), "ratio", lam=0.6)[0, 0] > 0
    assert gradient(logits, torch.tensor([0]), "log", lam=0.6)[0, 0] < 0
