"""What the scope sees, what it refuses, and terms other than the penalty in it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.nn.functional import cross_entropy, nll_loss
from torch.utils.checkpoint import checkpoint

from coop_cmp import CMPenalty, TermScope, cmp_loss
from coop_cmp.losses import function_of
from coop_cmp.losses.names import TERMS
from tests.fake_gpu import fake_gpu

ADDED = [name for name, term in TERMS.items() if not term.replaces]
REPLACING = [name for name, term in TERMS.items() if term.replaces]
pytestmark = pytest.mark.filterwarnings("ignore:.*no cross-entropy ran")
HOLDER = SimpleNamespace(loss=F.cross_entropy)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(12, 5, generator=generator)
    return logits.requires_grad_(), torch.randint(5, (12,), generator=generator)


@pytest.fixture
def needs() -> dict:
    generator = torch.Generator().manual_seed(1)
    zero_shot = torch.randn(12, 5, generator=generator)
    text = torch.randn(2, 5, 8, generator=generator)
    return {"zero_shot_logits": lambda: zero_shot, "text_features": lambda: (text[0], text[1])}


def value_of(name: str, batch, needs) -> torch.Tensor:
    return function_of(name)(*batch, *(needs[need]() for need in TERMS[name].needs))


@pytest.mark.parametrize(
    "loss_of",
    [
        cross_entropy,
        HOLDER.loss,
        lambda z, y: nll_loss(z.log_softmax(1), y),
        lambda z, y: F.nll_loss(z.log_softmax(1), y),
        lambda z, y: nn.NLLLoss()(F.log_softmax(z, 1), y),
    ],
    ids=["by name", "held by an object", "nll by name", "nll", "nll module"],
)
def test_cross_entropy_is_seen_by_whatever_name_it_is_called(batch, loss_of):
    with CMPenalty(0.5) as penalty:
        loss = loss_of(*batch)
    expected = F.cross_entropy(*batch) + 0.5 * cmp_loss(*batch)
    torch.testing.assert_close(loss, expected)
    assert penalty.calls == 1
    (grad,) = torch.autograd.grad(loss, batch[0])
    torch.testing.assert_close(grad, torch.autograd.grad(expected, batch[0])[0])


def test_the_old_way_of_naming_a_reduction_is_honoured(batch):
    with pytest.warns(UserWarning, match="deprecated"), CMPenalty(0.5):
        loss = F.cross_entropy(*batch, size_average=False)
    plain = F.cross_entropy(*batch, reduction="sum")
    torch.testing.assert_close(loss, plain + 0.5 * cmp_loss(*batch, reduction="sum"))


@pytest.mark.parametrize("term", ADDED)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_term_is_added_with_its_weight(term, batch, needs, reduction):
    with TermScope(term, 0.5, needs) as scope:
        loss = F.cross_entropy(*batch, reduction=reduction)
    value = value_of(term, batch, needs)
    count = 12 if reduction == "sum" else 1
    expected = F.cross_entropy(*batch, reduction=reduction) + 0.5 * count * value
    torch.testing.assert_close(loss, expected)
    assert scope.value == pytest.approx(value.item())
    (grad,) = torch.autograd.grad(loss, batch[0])
    torch.testing.assert_close(grad, torch.autograd.grad(expected, batch[0])[0])


@pytest.mark.parametrize("term", ADDED)
def test_weight_zero_returns_the_untouched_cross_entropy(term, batch, needs, monkeypatch):
    untouched = F.cross_entropy(*batch)
    with monkeypatch.context() as patch:
        patch.setattr(torch._C._nn, "cross_entropy_loss", lambda *_: untouched)
        with TermScope(term, 0.0, needs) as scope:
            assert F.cross_entropy(*batch) is untouched
    assert scope.value == pytest.approx(value_of(term, batch, needs).item())


@pytest.mark.parametrize("term", REPLACING)
def test_a_term_can_take_the_place_of_cross_entropy(term, batch, needs):
    with TermScope(term, needs=needs) as scope, CMPenalty(0.5):
        loss = F.cross_entropy(*batch)
        total = F.cross_entropy(*batch, reduction="sum")
    expected = value_of(term, batch, needs)
    torch.testing.assert_close(loss, expected + 0.5 * cmp_loss(*batch))
    torch.testing.assert_close(total, 12 * loss)
    assert scope.value == pytest.approx(expected.item())
    with TermScope("Focal"), TermScope(term, needs=needs), pytest.raises(ValueError, match="both"):
        F.cross_entropy(*batch)
    with TermScope(term, needs=needs), pytest.raises(ValueError, match="no class weights"):
        F.cross_entropy(*batch, label_smoothing=0.1)
    with pytest.raises(ValueError, match="has no weight"):
        TermScope(term, 0.5)


@pytest.mark.parametrize("named", [{"ignore_index": 3}, {}], ids=["named", "default"])
def test_ignored_samples_count_for_no_term(batch, needs, named):
    logits, labels = batch
    kept = labels != 3
    given = labels if named else labels.where(kept, -100)
    for term in TERMS:
        with TermScope(term, needs=needs) as scope:
            F.cross_entropy(logits, given, **named)
        zero_shot = needs["zero_shot_logits"]()[kept]
        fewer = {**needs, "zero_shot_logits": lambda rows=zero_shot: rows}
        expected = value_of(term, (logits[kept], labels[kept]), fewer)
        assert scope.value == pytest.approx(expected.item())


def test_on_a_gpu_the_default_label_of_ignored_samples_is_refused_without_waiting():
    mode = FakeTensorMode()
    with fake_gpu(mode), mock.patch("torch._assert_async") as asserted, TermScope("MbLS", 0.5):
        F.cross_entropy(torch.ones(4, 5, device="cuda"), torch.ones(4, device="cuda").long())
    ((condition, message),) = (call.args for call in asserted.call_args_list)
    assert condition.dtype == torch.bool
    assert message == "MbLS: give cross_entropy ignore_index"


def test_what_a_term_cannot_use_is_refused(batch):
    with TermScope("TCPT"), pytest.raises(ValueError, match="TCPT needs text_features"):
        F.cross_entropy(*batch)
    with TermScope("ZSPenalty"), pytest.raises(ValueError, match="log-probabilities"):
        F.nll_loss(F.log_softmax(batch[0], 1), batch[1])
    with pytest.raises(ValueError, match='no term "MBLS"; did you mean "MbLS"'):
        TermScope("MBLS")
    with pytest.raises(ValueError, match="margin must be"):
        TermScope("MbLS", 1, margin=-1)


LOSSES = {
    "attribute": lambda z, y: F.cross_entropy(z, y),
    "by name": lambda z, y: cross_entropy(z, y),
}
MODULE = nn.CrossEntropyLoss()
LOSSES["module"] = lambda z, y: MODULE(z, y)
LOSSES["nll"] = lambda z, y: F.nll_loss(F.log_softmax(z, 1), y)
LOSSES["nll by name"] = lambda z, y: nll_loss(F.log_softmax(z, 1), y)
LOSSES["kept by an object"] = lambda z, y: HOLDER.loss(z, y)


@pytest.mark.parametrize(
    ("how", "compiled_before", "backend"),
    [
        *(
            (how, True, "aot_eager")
            for how in ("attribute", "by name", "module", "nll", "nll by name")
        ),
        ("attribute", False, "aot_eager"),
        ("by name", False, "aot_eager"),
        ("by name", True, "eager"),
    ],
)
def test_a_compiled_cross_entropy_carries_the_term_once(batch, how, compiled_before, backend):
    torch._dynamo.reset()
    compute = LOSSES[how]
    compiled = torch.compile(lambda z, y: 2 * compute(z.sin(), y), backend=backend)
    logits, labels = batch
    plain = F.cross_entropy(logits.sin(), labels)
    if compiled_before:
        torch.testing.assert_close(compiled(logits, labels), 2 * plain)
    for _ in range(2):
        with CMPenalty(0.5) as penalty:
            loss = compiled(logits, labels)
        expected = 2 * (plain + 0.5 * cmp_loss(logits.sin(), labels))
        torch.testing.assert_close(loss, expected)
        assert penalty.calls == 1
        (grad,) = torch.autograd.grad(loss, logits)
        (by_hand,) = torch.autograd.grad(expected, logits, retain_graph=True)
        torch.testing.assert_close(grad, by_hand)
        torch.testing.assert_close(compiled(logits, labels), 2 * plain)


def test_what_is_compiled_and_kept_elsewhere_than_in_a_module_is_refused(batch):
    torch._dynamo.reset()
    compiled = torch.compile(LOSSES["kept by an object"], backend="aot_eager")
    with CMPenalty(0.5), pytest.raises(Exception, match="under a name of its own"):
        compiled(*batch)
    torch._dynamo.reset()
    compiled(*batch)
    with pytest.warns(UserWarning, match="no cross-entropy ran"), CMPenalty(0.5):
        compiled(*batch)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_reentrant_checkpointing_is_refused_where_backward_comes_too_late(batch, lam):
    logits, labels = batch

    def loss_of(z: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(z.sin(), labels)

    if lam == 0:
        with CMPenalty(lam):
            loss = checkpoint(loss_of, logits, use_reentrant=True)
        loss.backward()
        return
    with pytest.raises(RuntimeError, match="use_reentrant=False"), CMPenalty(lam):
        checkpoint(loss_of, logits, use_reentrant=True)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        _one_of_two_differentiated(lam, lambda: checkpoint(loss_of, logits, use_reentrant=True))
    with CMPenalty(lam):
        loss = checkpoint(loss_of, logits, use_reentrant=False)
    with pytest.raises(RuntimeError, match="different number of tensors"):
        loss.backward()  # torch itself notices


def _one_of_two_differentiated(lam, compute):
    with CMPenalty(lam):
        compute().backward()
        compute()


def test_cross_entropy_without_gradients_is_no_checkpoint(batch):
    with torch.no_grad(), CMPenalty(0.5):
        F.cross_entropy(*batch)


@pytest.mark.parametrize(("lam", "told"), [(0.001, True), (100.0, False)])
def test_a_gradient_below_the_precision_of_the_logits_is_told_once(batch, lam, told, recwarn):
    logits, labels = batch[0].detach().half().requires_grad_(), batch[1]
    scope = CMPenalty(lam)
    for _ in range(2):
        with scope:
            loss = F.cross_entropy(logits, labels)
        loss.backward()
    lines = [str(warning.message) for warning in recwarn]
    assert len(lines) == told
    if told:
        assert "logits are torch.float16" in lines[0]


def test_the_share_that_rounding_takes_is_measured(batch):
    lines: list[str] = []
    shares = []
    for lam in (0.0001, 0.01, 1.0):
        logits = batch[0].detach().half().requires_grad_()
        scope = CMPenalty(lam)
        scope.tell = lines.append
        with scope:
            F.cross_entropy(logits, batch[1]).backward()
        plain = batch[0].detach().half().requires_grad_()
        F.cross_entropy(plain, batch[1]).backward()
        exact = batch[0].detach().half().float().requires_grad_()
        (lam * cmp_loss(exact, batch[1])).backward()
        error = (logits.grad.float() - plain.grad.float() - exact.grad).norm() / exact.grad.norm()
        shares.append(min(1.0, error.item()))
    assert len(lines) == sum(share > 0.01 for share in shares)
    assert f"took {shares[0]:.0%}" in lines[0]
    assert not math.isclose(shares[0], shares[1])


def test_rounding_is_told_only_where_two_gradients_are_added_in_half_precision(batch):
    def told(dtype=torch.float16, lam=0.001, grad=True, term="CMP", loss=F.cross_entropy):
        lines: list[str] = []
        scope = TermScope(term, lam)
        scope.tell = lines.append
        logits = batch[0].detach().to(dtype).requires_grad_()
        with torch.set_grad_enabled(grad), scope:
            loss(logits, batch[1])
        return lines

    assert "torch.float16" in told()[0]
    assert "torch.bfloat16" in told(torch.bfloat16)[0]
    assert "MbLS: logits are" in told(term="MbLS", lam=1e-5)[0]
    assert told(loss=lambda z, y: F.nll_loss(z.log_softmax(1), y))
    assert not told(loss=lambda z, y: F.cross_entropy(z.float(), y))
    assert not told(torch.float32)
    assert not told(grad=False)
    assert not told(lam=0.0)
    assert not told(term="Focal", lam=None)


def test_a_batch_without_mistakes_says_nothing_about_rounding(batch):
    lines: list[str] = []
    scope = CMPenalty(0.001)
    scope.tell = lines.append
    logits = batch[0].detach().half().requires_grad_()
    for labels, expected in ((logits.argmax(1), 0), (batch[1], 1), (batch[1], 1)):
        with scope:
            F.cross_entropy(logits, labels)
        assert len(lines) == expected
