"""What the scope sees, adds, records and refuses."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from coop_cmp import CMPenalty, TermScope, cmp_loss
from coop_cmp.losses import function_of
from coop_cmp.losses.names import TERMS

ADDED = [name for name, term in TERMS.items() if not term.replaces]
REPLACING = [name for name, term in TERMS.items() if term.replaces]
PLAIN = torch._C._nn.cross_entropy_loss
HOLDER = SimpleNamespace(loss=F.cross_entropy)
MODULE = nn.CrossEntropyLoss()
NAMES = {
    "attribute": lambda z, y: F.cross_entropy(z, y),
    "imported name": lambda z, y: cross_entropy(z, y),
    "module": lambda z, y: MODULE(z, y),
    "held by an object": lambda z, y: HOLDER.loss(z, y),
}


@pytest.fixture(autouse=True)
def cross_entropy_is_left_as_it_was():
    yield
    assert torch._C._nn.cross_entropy_loss is PLAIN


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


@pytest.mark.parametrize("form", ["ratio", "log"])
@pytest.mark.parametrize("how", NAMES)
def test_cross_entropy_carries_the_penalty_by_whatever_name_it_is_called(batch, device, how, form):
    logits, labels = (tensor.to(device) for tensor in batch)
    with CMPenalty(0.5, form) as penalty:
        loss = NAMES[how](logits, labels)
    term = cmp_loss(logits, labels, form)
    expected = F.cross_entropy(logits, labels) + 0.5 * term
    torch.testing.assert_close(loss, expected)
    assert penalty.calls == 1
    assert penalty.value == penalty.mean == pytest.approx(term.item())
    (grad,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, logits)[0])


@pytest.mark.parametrize(
    "options",
    [
        {"weight": torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0])},
        {"label_smoothing": 0.2},
        {"reduction": "sum"},
        {"ignore_index": 3},
        {"ignore_index": 3, "reduction": "sum", "label_smoothing": 0.1},
    ],
)
def test_options_of_cross_entropy_are_honoured_and_ignored_labels_not_penalised(batch, options):
    logits, labels = batch
    with CMPenalty(0.5) as penalty:
        loss = F.cross_entropy(logits, labels, **options)
    kept = labels != options.get("ignore_index", -100)
    own = cmp_loss(logits[kept], labels[kept], reduction=options.get("reduction", "mean"))
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels, **options) + 0.5 * own)
    assert penalty.value == pytest.approx(cmp_loss(logits[kept], labels[kept]).item())


def test_cross_entropy_of_maps_and_of_one_sample_is_penalised_per_position(batch):
    logits, labels = batch
    maps, targets = logits.view(3, 4, 5).movedim(2, 1), labels.view(3, 4)  # [N, C, d]
    with CMPenalty(0.5) as penalty:
        F.cross_entropy(maps, targets)
        F.cross_entropy(logits[0], labels[0])
    expected = cmp_loss(logits, labels).item() + cmp_loss(logits[:1], labels[:1]).item()
    assert penalty.mean == pytest.approx(expected / 2)


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


def test_logits_that_are_not_finite_reach_the_trainers_own_test(batch):
    logits, labels = batch[0].detach().clone(), batch[1]
    logits[0, 0] = math.nan
    with CMPenalty(0.0):
        assert F.cross_entropy(logits, labels).isnan()


@pytest.mark.parametrize("term", REPLACING)
def test_a_term_can_take_the_place_of_cross_entropy(term, batch, needs):
    with TermScope(term, needs=needs) as scope, CMPenalty(0.5):
        loss = F.cross_entropy(*batch)
        total = F.cross_entropy(*batch, reduction="sum")
    expected = value_of(term, batch, needs)
    torch.testing.assert_close(loss, expected + 0.5 * cmp_loss(*batch))
    torch.testing.assert_close(total, 12 * loss)
    assert scope.value == pytest.approx(expected.item())
    with pytest.raises(ValueError, match="both"), TermScope("Focal"), TermScope(term, needs=needs):
        F.cross_entropy(*batch)
    with pytest.raises(ValueError, match="no class weights"), TermScope(term, needs=needs):
        F.cross_entropy(*batch, label_smoothing=0.1)
    with pytest.raises(ValueError, match="has no weight"):
        TermScope(term, 0.5, needs)


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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": torch.full((12, 5), 0.2)}, "class indices, got probabilities"),
        ({"reduction": "none"}, '"mean" or "sum", got "none"'),
    ],
)
def test_what_cannot_be_penalised_is_refused(batch, given, words):
    with pytest.raises(ValueError, match=words), CMPenalty(0.5):
        F.cross_entropy(**{"input": batch[0], "target": batch[1], **given})


@pytest.mark.parametrize("arguments", [(-0.1,), (math.inf,), ("1",), (1, "rato"), (1, "log", 0)])
def test_wrong_settings_are_refused_when_the_scope_is_made(arguments):
    with pytest.raises(ValueError, match="must be"):
        CMPenalty(*arguments)


def test_a_wrong_term_and_what_it_lacks_are_refused_when_the_scope_is_made():
    with pytest.raises(ValueError, match="TCPT needs text_features"):
        TermScope("TCPT")
    with pytest.raises(ValueError, match='no term "MBLS"; did you mean "MbLS"'):
        TermScope("MBLS")
    with pytest.raises(ValueError, match="margin must be"):
        TermScope("MbLS", 1, margin=-1)


def test_a_scope_that_saw_nothing_is_an_error():
    penalty = CMPenalty(0.5)
    with pytest.raises(RuntimeError, match="CMP: no cross-entropy ran"), penalty:
        pass
    assert penalty.calls == 0
    assert math.isnan(penalty.value)
    assert math.isnan(penalty.mean)


@pytest.mark.parametrize("how", NAMES)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("compiled_before", [True, False])
def test_compiled_code_carries_the_term_or_is_an_error(batch, how, backend, compiled_before):
    torch._dynamo.reset()
    compiled = torch.compile(NAMES[how], backend=backend)
    plain = compiled(*batch) if compiled_before else None
    if compiled_before and backend == "eager":  # runs Python's cross_entropy
        with CMPenalty(0.5):
            torch.testing.assert_close(compiled(*batch), plain + 0.5 * cmp_loss(*batch))
        return
    words = "no cross-entropy ran" if compiled_before else "out of what is compiled"
    with pytest.raises(Exception, match=words), CMPenalty(0.5):  # torch wraps errors of its own
        compiled(*batch)


def test_scopes_nest_and_add_up(batch):
    logits, labels = batch
    with CMPenalty(0.5) as outer:
        with CMPenalty(0.25, "log") as inner:
            loss = F.cross_entropy(logits, labels)
        F.cross_entropy(logits, labels)
    ratio, log = cmp_loss(logits, labels), cmp_loss(logits, labels, "log")
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels) + 0.5 * ratio + 0.25 * log)
    assert (outer.calls, inner.calls) == (2, 1)
    assert (outer.value, inner.value) == pytest.approx((ratio.item(), log.item()))


def test_a_scope_can_be_used_again_but_not_inside_itself(batch):
    penalty = CMPenalty(0.5)
    for _ in range(2):
        with penalty:
            F.cross_entropy(*batch)
            with pytest.raises(RuntimeError, match="already entered"), penalty:
                pass
    assert penalty.calls == 1


def test_an_exception_inside_leaves_no_trace(batch):
    plain = F.cross_entropy(*batch)
    with pytest.raises(ZeroDivisionError), CMPenalty(0.5), CMPenalty(0.5):
        raise ZeroDivisionError
    assert torch.equal(F.cross_entropy(*batch), plain)


def test_replicas_in_threads_of_their_own_are_penalised(batch):
    losses = []
    with CMPenalty(0.5) as penalty:
        for _ in range(2):
            thread = threading.Thread(target=lambda: losses.append(F.cross_entropy(*batch)))
            thread.start()
            thread.join()
    expected = F.cross_entropy(*batch) + 0.5 * cmp_loss(*batch)
    torch.testing.assert_close(losses, [expected] * 2)
    assert penalty.calls == 2


def test_nothing_is_differentiated_without_gradients(batch):
    with torch.no_grad(), CMPenalty(0.5):
        loss = F.cross_entropy(*batch)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, F.cross_entropy(*batch) + 0.5 * cmp_loss(*batch))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_logits_are_penalised_in_float32(batch, dtype):
    logits, labels = batch[0].detach().to(dtype).requires_grad_(), batch[1]
    with CMPenalty(0.5) as penalty:
        loss = F.cross_entropy(logits, labels)
    loss.backward()
    assert loss.dtype == dtype
    assert penalty.value == pytest.approx(cmp_loss(logits.double(), labels).item(), rel=1e-6)
    assert torch.isfinite(logits.grad).all()


def test_the_scope_works_under_autocast(batch):
    features = torch.eye(5).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16), CMPenalty(0.5) as penalty:
        logits = batch[0].detach() @ features
        loss = F.cross_entropy(logits, batch[1])
    loss.backward()
    assert logits.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    assert penalty.value == pytest.approx(cmp_loss(logits.double(), batch[1]).item(), rel=1e-6)
    assert torch.isfinite(features.grad).all()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpointed_cross_entropy_is_penalised_alike(batch, use_reentrant):
    logits, labels = batch

    def loss_of(z: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(z.sin(), labels)

    with CMPenalty(0.5):
        checkpoint(loss_of, logits, use_reentrant=use_reentrant).backward()
    again = logits.detach().requires_grad_()
    (F.cross_entropy(again.sin(), labels) + 0.5 * cmp_loss(again.sin(), labels)).backward()
    torch.testing.assert_close(logits.grad, again.grad)
