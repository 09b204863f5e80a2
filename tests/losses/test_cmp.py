"""The penalty of a batch, against hand-worked cases and a slow plain version."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coop_cmp import cmp_loss

FORMS = ("ratio", "log")


def slow_penalty(logits: list[list[float]], labels: list[int], form: str) -> list[float]:
    """One sample and one class at a time, in Python floats, as the definition reads."""
    penalties = []
    for row, label in zip(logits, labels, strict=True):
        gaps = [z - row[label] for z in row if z > row[label]]
        if not gaps:
            penalties.append(0.0)
            continue
        top = max(gaps)
        minus_log_r = top + math.log(math.fsum(math.exp(gap - top) for gap in gaps))
        penalties.append(math.exp(-minus_log_r) if form == "ratio" else minus_log_r)
    return penalties


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    """Logits up to +-1e4 and labels, with ties, easy, hopeless and far-off cases among them."""
    n_classes = draw(st.integers(2, 12))
    wide = st.floats(-1e4, 1e4, allow_subnormal=False)
    usual = st.floats(-30, 30, allow_subnormal=False)
    tied = st.integers(-2, 2).map(float)
    rows, labels = [], []
    for _ in range(draw(st.integers(1, 6))):
        value = draw(st.sampled_from([wide, usual, tied]))
        row = draw(st.lists(value, min_size=n_classes, max_size=n_classes))
        if draw(st.booleans()):
            row[draw(st.integers(0, n_classes - 1))] = 1e4
        kind = draw(st.sampled_from(["any", "right", "wrong"]))
        chosen = {"right": max(row), "wrong": min(row)}.get(kind)
        label = draw(st.integers(0, n_classes - 1)) if chosen is None else row.index(chosen)
        rows.append(row)
        labels.append(label)
    return rows, labels


@pytest.mark.parametrize(
    ("probs", "label", "ratio"),
    [
        ([0.2, 0.5, 0.3], 0, 0.25),  # both others outrank it: 0.2 / 0.8
        ([0.2, 0.5, 0.3], 2, 0.6),  # only the second does: 0.3 / 0.5
        ([0.2, 0.5, 0.3], 1, 0.0),  # correct
        ([0.4, 0.4, 0.2], 1, 0.0),  # a tie at the top is not outranked
        ([0.2, 0.2, 0.6], 0, 1 / 3),  # a tie below the top is no competitor either
        ([0.25, 0.25, 0.25, 0.25], 3, 0.0),
    ],
)
def test_the_penalty_matches_cases_worked_by_hand(probs, label, ratio):
    logits, labels = torch.tensor([probs]).log(), torch.tensor([label])
    assert cmp_loss(logits, labels).item() == pytest.approx(ratio, abs=1e-7)
    expected = -math.log(ratio) if ratio else 0.0
    assert cmp_loss(logits, labels, "log").item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=150, deadline=None)
@given(batch=batches())
def test_the_penalty_equals_the_slow_version(form, batch):
    rows, labels = batch
    logits = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    penalties = cmp_loss(logits, torch.tensor(labels), form, eps=1e-300, reduction="none")
    expected = torch.tensor(slow_penalty(rows, labels, form), dtype=torch.float64)
    torch.testing.assert_close(penalties, expected, rtol=1e-9, atol=1e-12)
    (grad,) = torch.autograd.grad(penalties.sum(), logits)
    assert torch.isfinite(grad).all()
    narrow = cmp_loss(logits.float(), torch.tensor(labels), form, reduction="none")
    in_float32 = slow_penalty(logits.float().tolist(), labels, form)
    torch.testing.assert_close(narrow, torch.tensor(in_float32), rtol=1e-4, atol=1e-6)


def sample_logits(n: int, c: int, scale: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n * c)
    logits = scale * torch.randn(n, c, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.randint(c, (n,), generator=generator)


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_is_the_closed_form_of_the_documentation(form):
    logits, labels = sample_logits(64, 10)
    penalties = cmp_loss(logits, labels, form, reduction="none")
    (grad,) = torch.autograd.grad(penalties.sum(), logits)
    z, rows = logits.detach(), torch.arange(64)
    outranking = z > z[rows, labels, None]
    wrong = outranking.any(1)
    assert wrong.any()
    assert not wrong.all()
    among = z.masked_fill(~outranking, -math.inf).softmax(1).nan_to_num()  # softmax over A
    expected = among.clone()
    expected[rows, labels] = -wrong.double()  # the log form: -1 and + softmax over A
    if form == "ratio":  # + r and - r * softmax over A
        expected *= -penalties.detach()[:, None]
    torch.testing.assert_close(grad, expected, rtol=0, atol=1e-6)


def test_eps_is_added_to_the_probability_of_the_competitors():
    logits, labels = sample_logits(32, 6)
    probs = logits.detach().softmax(1)
    true = probs.gather(1, labels[:, None])
    mass = (probs * (probs > true)).sum(1, keepdim=True)
    expected = torch.where(mass > 0, true / (mass + 0.3), 0).squeeze(1)
    torch.testing.assert_close(cmp_loss(logits, labels, eps=0.3, reduction="none"), expected)


@pytest.mark.parametrize("form", FORMS)
def test_half_precision_logits_keep_the_value_of_double_precision(form):
    generator = torch.Generator().manual_seed(0)
    logits = torch.empty(64, 1000).uniform_(-100, 100, generator=generator).half()
    labels = torch.randint(1000, (64,), generator=generator)
    labels[:16] = logits[:16].topk(5).indices[:, 4]  # near misses, where r is not tiny
    penalties = cmp_loss(logits, labels, form, reduction="none")
    assert penalties.dtype == torch.float32
    expected = cmp_loss(logits.double(), labels, form, reduction="none")
    assert expected.dtype == torch.float64
    torch.testing.assert_close(penalties.double(), expected, rtol=1e-3, atol=1e-30)
    # What a ratio of half-precision softmax values gives instead: nothing, or no number.
    probs = logits.softmax(1)
    true = probs.gather(1, labels[:, None])
    naive = (true / (probs * (probs > true)).sum(1, keepdim=True)).squeeze(1)
    lost = (naive == 0) | naive.isnan()
    assert (lost & (expected > 0)).sum() > 32


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_value_and_gradient_are_finite_at_the_edge_of_the_number_range(form, dtype):
    huge = torch.finfo(dtype).max / 16
    rows = [[huge, -huge, 0.0], [-huge, huge, huge], [0.0, 1e-30, 0.0], [-huge, 0.0, -huge]]
    logits = torch.tensor(rows, dtype=dtype).requires_grad_()
    penalty = cmp_loss(logits, torch.tensor([1, 0, 0, 2]), form)
    (grad,) = torch.autograd.grad(penalty, logits)
    assert torch.isfinite(penalty)
    assert torch.isfinite(grad).all()
    assert grad.dtype == dtype


def test_reductions_agree_and_ignored_labels_are_left_out():
    logits, labels = sample_logits(20, 5)
    kept = torch.arange(20) % 3 > 0
    target = torch.where(kept, labels, -7)
    each = cmp_loss(logits, target, reduction="none", ignore_index=-7)
    torch.testing.assert_close(each[kept], cmp_loss(logits[kept], labels[kept], reduction="none"))
    assert each[~kept].eq(0).all()
    total = cmp_loss(logits, target, reduction="sum", ignore_index=-7)
    torch.testing.assert_close(total, each.sum())
    mean = cmp_loss(logits, target, ignore_index=-7)
    torch.testing.assert_close(mean, each[kept].mean())
    (grad,) = torch.autograd.grad(mean, logits)
    assert grad[~kept].eq(0).all()
    assert cmp_loss(logits, torch.full((20,), -7), ignore_index=-7) == 0
    assert cmp_loss(torch.empty(0, 4), torch.empty(0, dtype=torch.long)) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logits": torch.zeros(4)}, "logits must be floating-point of shape"),
        ({"logits": torch.zeros(4, 3, 2)}, "logits must be floating-point of shape"),
        ({"logits": torch.zeros(4, 0)}, "C >= 1"),
        ({"logits": torch.zeros(4, 3, dtype=torch.long)}, "torch.int64"),
        ({"logits": torch.full((4, 3), math.nan)}, "finite"),
        ({"logits": torch.tensor([[0.0, 1, -math.inf]] * 4)}, "finite"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, r"labels must be integers of shape \[4\]"),
        ({"labels": torch.zeros(4)}, "torch.float32"),
        ({"labels": torch.zeros(4, 3)}, "shape"),
        ({"labels": torch.tensor([0, 1, 2, 3])}, r"\[0, 3\), got 3"),
        ({"labels": torch.tensor([0, -100, 2, 1])}, "got -100.*ignore_index"),
        ({"form": "logarithm"}, 'form must be "ratio" or "log", got \'logarithm\'; did you mean'),
        ({"reduction": "average"}, "reduction must be"),
        ({"eps": 0.0}, "eps must be a finite number > 0, got 0.0"),
        ({"eps": math.nan}, "eps must be"),
        ({"eps": "1e-10"}, "eps must be"),
    ],
)
def test_wrong_arguments_are_refused_with_a_clear_message(change, words):
    arguments = {"logits": torch.zeros(4, 3), "labels": torch.zeros(4, dtype=torch.long)}
    with pytest.raises(ValueError, match=words):
        cmp_loss(**{**arguments, **change})


def test_the_check_of_values_can_be_switched_off():
    logits = torch.tensor([[0.0, math.nan, 1.0], [0.0, 2.0, 1.0]])
    penalties = cmp_loss(logits, torch.tensor([0, 2]), reduction="none", validate=False)
    assert penalties[1] == pytest.approx(math.exp(-1))


@pytest.mark.parametrize("form", FORMS)
def test_it_can_be_differentiated_twice_and_under_torch_func(form):
    logits, labels = sample_logits(4, 3)

    def penalty(z):
        return cmp_loss(z, labels, form)

    assert torch.autograd.gradgradcheck(penalty, logits)
    (grad,) = torch.autograd.grad(penalty(logits), logits)
    torch.testing.assert_close(torch.func.grad(penalty)(logits.detach()), grad)

    def of_one(z, label):
        return cmp_loss(z[None], label[None], form, validate=False)

    each = torch.func.vmap(torch.func.grad(of_one))(logits.detach(), labels)
    torch.testing.assert_close(each / len(labels), grad)
