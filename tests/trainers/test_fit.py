"""What a run says about its training: accuracy on training views, mistakes, share of gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from coop_cmp.losses import cmp_loss
from coop_cmp.trainers.base import same_classes
from coop_cmp.trainers.fit import gradient_ratio
from tests.trainers.conftest import METHODS, steps


@pytest.mark.parametrize("form", ["ratio", "log"])
def test_the_ratio_is_that_of_the_gradients_in_the_logits(form):
    logits = (3 * torch.randn(20, 6, generator=torch.Generator().manual_seed(1))).requires_grad_()
    label = torch.arange(20) % 6
    term = 0.3 * cmp_loss(logits, label, form)
    (own,) = torch.autograd.grad(term, logits, retain_graph=True)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, label), logits)
    expected = own.abs().sum() / plain.abs().sum()
    torch.testing.assert_close(gradient_ratio(term, logits, logits, label), expected)
    assert 0 < expected < 0.6  # twice the weight at most


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("term", ["CMP", "ECP", "Brier"])
def test_every_method_records_what_its_term_did(build, method, term):
    trainer = build(f"{method}_{term}", "TRAIN.PRINT_FREQ", 1, "TRAINER.CMP.LAMBDA", 0.5)
    reports = steps(trainer)
    fit = trainer.facts()["fit"]
    accuracies = [report["acc"] / 100 for report in reports]
    assert fit["accuracy"] == pytest.approx(sum(accuracies) / 3)
    assert fit["wrong"] == pytest.approx(1 - sum(accuracies) / 3)
    assert fit["gradient"] > 0


@pytest.mark.parametrize("penalty_on", ["mean", "bound"])
def test_what_is_measured_of_proda_is_of_the_logits_that_are_penalised(build, penalty_on):
    options = ("TRAINER.PRODA.PENALTY_ON", penalty_on, "TRAIN.PRINT_FREQ", 1)
    trainer = build("ProDA_CMP", *options)
    trainer.epoch, trainer.batch_idx, trainer.num_batches = 0, 0, 1
    step = trainer.compute_losses(trainer.train_loader_x[0])
    bound = step.logits + 3 * (1 - F.one_hot(step.label, step.logits.shape[1]))
    step.trained_logits = bound
    penalised = trainer.penalised_logits(step)
    step.losses = {"loss_upper": F.cross_entropy(bound, step.label)}
    step.losses["loss_cmp"] = 0.01 * cmp_loss(penalised, step.label)
    own, plain = (
        torch.autograd.grad(loss, step.logits, retain_graph=True)[0].abs().sum()
        for loss in (step.losses["loss_cmp"], step.losses["loss_upper"])
    )
    trainer.record_fit(step, torch.tensor(100.0))
    fit = trainer.fit.means()
    wrong = (penalised.argmax(1) != step.label).float().mean() if penalty_on == "bound" else 0
    assert fit["wrong"] == pytest.approx(float(wrong))
    assert fit["gradient"] == pytest.approx(float(own / plain), rel=1e-4)


def test_the_gradient_is_measured_where_an_epoch_has_fewer_batches_than_a_print_takes(build):
    trainer = build("CoOp_CMP", "TRAIN.PRINT_FREQ", 10)
    steps(trainer, 2)
    assert "gradient" not in trainer.facts()["fit"]
    steps(trainer, 3)  # the last batch of the epoch
    assert trainer.facts()["fit"]["gradient"] > 0


def test_a_plain_method_has_no_gradient_of_a_term_and_an_untrained_one_nothing(build):
    trainer = build("CoOp")
    assert trainer.facts()["fit"] == {}
    steps(trainer)
    assert set(trainer.facts()["fit"]) == {"wrong", "accuracy"}


def test_curves_hold_the_mean_of_each_epoch_and_are_thinned_out(build):
    trainer = build("CoOp")
    for epoch in range(1000):
        trainer.epoch = epoch
        trainer.write_scalar("train/loss", 7.0)  # the running mean before the last batch
        trainer.write_scalar("train/loss", epoch / 3)
        trainer.write_scalar("train/lr", 0.1)
        trainer.write_scalar("test/ece", 0.1)
    curves = trainer.facts()["fit"]["curves"]
    assert list(curves) == ["loss"]
    assert len(curves["loss"]) == 200
    assert curves["loss"][-1] == [1000, 333.0]
    assert curves["loss"][0] == [5, pytest.approx(4 / 3, abs=1e-4)]


def test_a_penalty_without_a_mistake_to_act_on_is_noted(build):
    trainer = build("CoOp_CMP")
    steps(trainer, 1)
    assert not any("misclassified" in note for note in trainer.facts()["notes"])
    trainer = build("CoOp_CMP")
    trainer.fit.add("wrong", torch.tensor(0.0))
    assert "no training sample was misclassified" in trainer.facts()["notes"][0]


def test_classes_that_are_the_same_to_the_model_are_noted(build):
    text = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    assert same_classes(text, ["a", "b", "c", "d"]) == []
    text[3] = 2 * text[1]
    (note,) = same_classes(text, ["a", "b", "c", "d"])
    assert note == "2 of 4 classes have the text features of another: b, d"
    trainer = build("ZeroshotCLIP", classnames=["cat", "Cat", "dog"])
    trainer.evaluator.evaluate = lambda: {"accuracy": 0.0}
    trainer.test()
    assert "2 of 3 classes" in trainer.evaluator.facts["notes"][0]
