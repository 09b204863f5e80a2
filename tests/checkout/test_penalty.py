"""The scope that puts the penalty into cross-entropy, and the trainers that use it."""

from __future__ import annotations

import copy
import math
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from yacs.config import CfgNode

from coop_cmp import CMPenalty, CMPMixin, add_cmp_config, cmp_loss, penalty_logits, plug

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*no cross-entropy ran", "ignore:.*logits are torch.bfloat16"
)
PLAIN = F.cross_entropy
PLAIN_IN_C = torch._C._nn.cross_entropy_loss
DEVICES = [
    "cpu",
    *["cuda"] * torch.cuda.is_available(),
    *["mps"] * torch.backends.mps.is_available(),
]


@pytest.fixture(autouse=True)
def cross_entropy_is_left_as_it_was():
    yield
    assert F.cross_entropy is PLAIN
    assert torch._C._nn.cross_entropy_loss is PLAIN_IN_C


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(12, 5, generator=generator)
    return logits.requires_grad_(), torch.randint(5, (12,), generator=generator)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", ["ratio", "log"])
@pytest.mark.parametrize("module", [None, nn.CrossEntropyLoss()])
def test_cross_entropy_in_the_scope_carries_the_penalty(batch, device, form, module):
    logits, labels = (tensor.to(device) for tensor in batch)
    with CMPenalty(0.5, form) as penalty:
        loss = (module or F.cross_entropy)(logits, labels)
    expected = cmp_loss(logits, labels, form)
    torch.testing.assert_close(loss, PLAIN(logits, labels) + 0.5 * expected)
    assert penalty.calls == 1
    assert penalty.value == pytest.approx(expected.item())


def test_a_scope_that_saw_nothing_has_no_value_and_says_so():
    with pytest.warns(UserWarning, match="CMP: no cross-entropy ran"), CMPenalty(0.5) as penalty:
        pass
    assert penalty.calls == 0
    assert math.isnan(penalty.value)
    assert math.isnan(penalty.mean)


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
    torch.testing.assert_close(loss, PLAIN(logits, labels, **options) + 0.5 * own)
    assert penalty.value == pytest.approx(cmp_loss(logits[kept], labels[kept]).item())


def test_the_gradient_is_that_of_the_sum(batch):
    logits, labels = batch
    with CMPenalty(0.5):
        loss = F.cross_entropy(logits, labels)
    (grad,) = torch.autograd.grad(loss, logits)
    by_hand = PLAIN(logits, labels) + 0.5 * cmp_loss(logits, labels)
    torch.testing.assert_close(grad, torch.autograd.grad(by_hand, logits)[0])


def test_cross_entropy_of_maps_and_of_one_sample_is_penalised_per_position(batch):
    logits, labels = batch
    maps, targets = logits.view(3, 4, 5).movedim(2, 1), labels.view(3, 4)  # [N, C, d]
    with CMPenalty(0.5) as penalty:
        F.cross_entropy(maps, targets)
        F.cross_entropy(logits[0], labels[0])
    expected = cmp_loss(logits, labels).item() + cmp_loss(logits[:1], labels[:1]).item()
    assert penalty.mean == pytest.approx(expected / 2)


def test_what_cannot_be_penalised_is_refused(batch):
    logits, labels = batch
    with CMPenalty(0.5):
        with pytest.raises(ValueError, match="class indices, got probabilities"):
            F.cross_entropy(logits, logits.detach().softmax(1))
        with pytest.raises(ValueError, match="reduction='none'"):
            F.cross_entropy(logits, labels, reduction="none")


@pytest.mark.parametrize("arguments", [(-0.1,), (math.inf,), ("1",), (1, "rato"), (1, "log", 0)])
def test_wrong_settings_are_refused_when_the_scope_is_made(arguments):
    with pytest.raises(ValueError, match="must be"):
        CMPenalty(*arguments)


def test_scopes_nest_and_add_up(batch):
    logits, labels = batch
    with CMPenalty(0.5) as outer:
        with CMPenalty(0.25, "log") as inner:
            loss = F.cross_entropy(logits, labels)
        F.cross_entropy(logits, labels)
    ratio, log = cmp_loss(logits, labels), cmp_loss(logits, labels, "log")
    torch.testing.assert_close(loss, PLAIN(logits, labels) + 0.5 * ratio + 0.25 * log)
    assert (outer.calls, inner.calls) == (2, 1)
    assert (outer.value, inner.value) == pytest.approx((ratio.item(), log.item()))


def test_a_scope_can_be_used_again_but_not_inside_itself(batch):
    penalty = CMPenalty(0.5)
    for _ in range(2):
        with penalty, pytest.raises(RuntimeError, match="already entered"), penalty:
            pass
        with penalty:
            F.cross_entropy(*batch)
    assert penalty.calls == 1


def test_an_exception_inside_leaves_no_trace(batch):
    with pytest.raises(ZeroDivisionError), CMPenalty(0.5), CMPenalty(0.5), penalty_logits(batch[0]):
        raise ZeroDivisionError
    assert torch.equal(F.cross_entropy(*batch), PLAIN(*batch))
    with CMPenalty(0.5) as penalty:
        F.cross_entropy(2 * batch[0], batch[1])
    assert penalty.value == pytest.approx(cmp_loss(2 * batch[0], batch[1]).item())


def test_other_threads_are_not_penalised(batch):
    losses = []
    with CMPenalty(0.5) as penalty:
        thread = threading.Thread(target=lambda: losses.append(F.cross_entropy(*batch)))
        thread.start()
        thread.join()
    assert torch.equal(losses[0], PLAIN(*batch))
    assert penalty.calls == 0


def test_overlapping_scopes_of_two_threads_end_in_any_order(batch):
    entered, leave = threading.Event(), threading.Event()
    values = []

    def other() -> None:
        with CMPenalty(0.5, "log") as penalty:
            entered.set()
            leave.wait()
            F.cross_entropy(*batch)
        values.append(penalty.value)

    thread = threading.Thread(target=other)
    with CMPenalty(0.5):
        thread.start()
        entered.wait()
    leave.set()
    thread.join()
    assert values == pytest.approx([cmp_loss(*batch, "log").item()])


def test_lambda_zero_returns_the_untouched_cross_entropy(batch, monkeypatch):
    untouched = PLAIN(*batch)
    with monkeypatch.context() as patch:
        patch.setattr(torch._C._nn, "cross_entropy_loss", lambda *_: untouched)
        with CMPenalty(0.0) as penalty:
            assert F.cross_entropy(*batch) is untouched
    assert penalty.value == pytest.approx(cmp_loss(*batch).item())


def test_nothing_is_differentiated_without_gradients(batch):
    with torch.no_grad(), CMPenalty(0.5) as penalty:
        loss = F.cross_entropy(*batch)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, PLAIN(*batch) + 0.5 * cmp_loss(*batch))
    assert penalty.calls == 1


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


def test_accumulated_gradients_are_those_of_the_halves(batch):
    logits, labels = batch
    halves = list(zip(logits.split(6), labels.split(6), strict=True))
    with CMPenalty(0.5) as penalty:
        for half in halves:
            F.cross_entropy(*half).backward()
    by_hand = sum(PLAIN(*half) + 0.5 * cmp_loss(*half) for half in halves)
    torch.testing.assert_close(logits.grad, torch.autograd.grad(by_hand, logits)[0])
    values = [cmp_loss(*half).item() for half in halves]
    assert penalty.calls == 2
    assert (penalty.value, penalty.mean) == pytest.approx((values[1], sum(values) / 2))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpointed_cross_entropy_is_penalised_alike_and_counted_once(batch, use_reentrant):
    logits, labels = batch

    def loss_of(z: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(z.sin(), labels)

    with CMPenalty(0.5) as penalty:
        checkpoint(loss_of, logits, use_reentrant=use_reentrant).backward()
    again = logits.detach().requires_grad_()
    (PLAIN(again.sin(), labels) + 0.5 * cmp_loss(again.sin(), labels)).backward()
    torch.testing.assert_close(logits.grad, again.grad)
    assert penalty.calls == 1


def test_other_logits_can_be_named_for_the_penalty(batch):
    logits, labels = batch
    upper = logits + 1.5 * torch.rand(12, 5)
    with CMPenalty(0.5) as penalty, penalty_logits(logits):
        loss = F.cross_entropy(upper, labels)
    torch.testing.assert_close(loss, PLAIN(upper, labels) + 0.5 * cmp_loss(logits, labels))
    with penalty_logits(logits):
        assert torch.equal(F.cross_entropy(upper, labels), PLAIN(upper, labels))
    with penalty, penalty_logits(logits[:3]), pytest.raises(ValueError, match=r"\(12, 5\).*\(3, 5"):
        F.cross_entropy(upper, labels)


class TinyCoOp:
    """What a prompt-learning trainer does, without Dassl: a frozen tower and a learnt context."""

    def __init__(self, cfg: CfgNode) -> None:
        self.check_cfg(cfg)
        self.cfg = cfg
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.text = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.image = copy.deepcopy(self.text)
        for tower in (self.text, self.image):
            tower.eval().requires_grad_(False)
        self.names = torch.randn(6, 3, 16)
        self.context = nn.Parameter(0.02 * torch.randn(1, 2, 16))
        self.optim = torch.optim.SGD([self.context], lr=0.1)

    def check_cfg(self, cfg: CfgNode) -> None:
        assert cfg.TRAINER.COOP.PREC == "fp32"

    def logits_of(self, images: torch.Tensor) -> torch.Tensor:
        prompts = torch.cat([self.context.expand(6, -1, -1), self.names], 1)
        texts = F.normalize(self.text(prompts)[:, -1], dim=1)
        return 10 * F.normalize(self.image(images)[:, 0], dim=1) @ texts.t()

    def forward_backward(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
        loss = F.cross_entropy(self.logits_of(batch["img"]), batch["label"])
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return {"loss": loss.item()}


def config(**cmp: object) -> CfgNode:
    cfg = CfgNode({"TRAINER": {"COOP": {"PREC": "fp32"}}})
    add_cmp_config(cfg)
    cfg.TRAINER.CMP.update(cmp)
    return cfg


def train(trainer: TinyCoOp, steps: int = 20) -> list[dict[str, float]]:
    generator = torch.Generator().manual_seed(1)
    batches = [
        {
            "img": torch.randn(8, 4, 16, generator=generator),
            "label": torch.randint(6, (8,), generator=generator),
        }
        for _ in range(steps)
    ]
    return [trainer.forward_backward(batch) for batch in batches]


def test_lambda_zero_trains_bit_identically_to_the_baseline():
    baseline, twin = TinyCoOp(config()), plug(TinyCoOp, register=False)(config(LAMBDA=0.0))
    losses, twin_losses = train(baseline), train(twin)
    assert torch.equal(twin.context, baseline.context)
    assert [summary["loss"] for summary in twin_losses] == [summary["loss"] for summary in losses]
    assert all(summary["loss_cmp"] > 0 for summary in twin_losses)


def test_a_positive_lambda_changes_training_and_logs_the_penalty_of_the_batch():
    baseline, twin = TinyCoOp(config()), plug(TinyCoOp, register=False)(config(LAMBDA=0.5))
    batch = {"img": torch.randn(8, 4, 16), "label": torch.randint(6, (8,))}
    logits = twin.logits_of(batch["img"])
    summary = twin.forward_backward(batch)
    penalty = cmp_loss(logits, batch["label"]).item()
    assert summary["loss_cmp"] == pytest.approx(penalty)
    expected = PLAIN(logits, batch["label"]).item() + 0.5 * penalty
    assert summary["loss"] == pytest.approx(expected)
    train(baseline)
    train(twin)
    assert not torch.equal(twin.context, baseline.context)


def test_settings_may_change_between_steps():
    twin = plug(TinyCoOp, register=False)(config(LAMBDA=0.0))
    batch = {"img": torch.randn(8, 4, 16), "label": torch.randint(6, (8,))}
    twin.forward_backward(batch)
    twin.cfg.TRAINER.CMP.LAMBDA = 0.5
    logits = twin.logits_of(batch["img"])
    summary = twin.forward_backward(batch)
    expected = PLAIN(logits, batch["label"]).item() + 0.5 * summary["loss_cmp"]
    assert summary["loss"] == pytest.approx(expected)


def test_a_trainer_whose_cross_entropy_is_out_of_sight_is_an_error():
    class Threaded(TinyCoOp):
        def forward_backward(self, batch):
            thread = threading.Thread(target=super().forward_backward, args=(batch,))
            thread.start()
            thread.join()

    trainer = plug(Threaded, register=False)(config())
    with pytest.raises(RuntimeError, match=r"Threaded_CMP: forward_backward ran no .*DataParallel"):
        train(trainer, 1)


@pytest.mark.parametrize(
    ("cmp", "words"),
    [
        ({"LAMBDA": -1.0}, r"TRAINER.CMP.LAMBDA must be a number >= 0, got -1.0"),
        ({"LAMBDA": math.nan}, "got nan"),
        ({"FORM": "logs"}, 'TRAINER.CMP.FORM must be .* did you mean "log"'),
        ({"EPS": 0.0}, "TRAINER.CMP.EPS must be"),
    ],
)
def test_a_wrong_config_is_refused_before_training(cmp, words):
    with pytest.raises(ValueError, match=words):
        plug(TinyCoOp, register=False)(config(**cmp))


def test_the_baselines_own_check_and_a_missing_node_are_reported():
    twin = plug(TinyCoOp, register=False)
    cfg = config()
    cfg.TRAINER.COOP.PREC = "fp8"
    with pytest.raises(AssertionError):
        twin(cfg)
    with pytest.raises(ValueError, match=r"TRAINER.CMP.LAMBDA is missing: call .*add_term_config"):
        twin(CfgNode({"TRAINER": {"COOP": {"PREC": "fp32"}}}))


def test_the_config_node_has_the_documented_defaults_and_is_added_once():
    cfg = config(LAMBDA=0.7)
    add_cmp_config(cfg)
    assert dict(cfg.TRAINER.CMP) == {"LAMBDA": 0.7, "FORM": "ratio", "EPS": 1e-10}
    assert config().TRAINER.CMP.LAMBDA == 0.01


def test_plug_names_and_registers_the_twin():
    from dassl.engine import TRAINER_REGISTRY

    class FreshTrainer(TinyCoOp):
        pass

    twin = plug(FreshTrainer)
    assert twin.__name__ == "FreshTrainer_CMP"
    assert issubclass(twin, CMPMixin)
    assert TRAINER_REGISTRY.get("FreshTrainer_CMP") is twin
    with pytest.raises(ValueError, match="already carries the penalty"):
        plug(twin)
    with pytest.raises(ValueError, match="no forward_backward"):
        plug(dict)
