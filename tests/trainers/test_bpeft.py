"""trainers/bpeft.py: losses and predictions by plain loops, independent members, whole runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from coop_cmp.trainers.bpeft import (
    correct_evidence,
    incorrect_evidence,
    joined_logits,
    likelihood_loss,
    predict,
    strengths,
    vacuity_of_logits,
)
from tests.trainers.conftest import CLASSES, loss_and_gradients, steps
from tests.trainers.test_devices import traced_step

SMALL = ("TRAINER.BPEFT.PREC", "fp32", "TRAINER.BPEFT.N_CTX", 4)


def test_the_loss_is_that_of_each_member_image_and_class_alone(build):
    trainer = build("BPEFT", *SMALL, "TRAINER.BPEFT.KL_WEIGHTS", [0.0, 0.5])
    with torch.no_grad():
        trainer.learner.offset.copy_(torch.tensor([-0.5, 0.25]))
    loss, gradients = loss_and_gradients(trainer)
    assert set(gradients) == {"ctx", "log_scale", "offset"}
    assert all((gradient != 0).any() for gradient in gradients.values())
    batch, model, expected = trainer.train_loader_x[0], trainer.model, 0.0
    images = F.normalize(model.visual(batch["img"]), dim=-1)
    for g, kl_weight in enumerate((0.0, 0.5)):
        text = F.normalize(model.text_encoder(model.prompt_learner.layout, trainer.learner.ctx[g]))
        scale = math.exp(trainer.learner.log_scale[g].item())
        assert scale == pytest.approx(model.logit_scale.exp().item() / 4)
        for image, label in zip(images, batch["label"].tolist(), strict=True):
            cosines = [(image @ t).item() for t in text]
            centre = sum(cosines) / len(cosines)
            outputs = [scale * (c - centre) + trainer.learner.offset[g].item() for c in cosines]
            alpha = [math.exp(o) + 1 for o in outputs]
            wrong = torch.tensor([1.0 if k == label else a for k, a in enumerate(alpha)])
            flat = torch.distributions.Dirichlet(torch.ones_like(wrong))
            one = math.log(sum(alpha) / alpha[label])
            one += (
                kl_weight
                * torch.distributions.kl_divergence(
                    torch.distributions.Dirichlet(wrong), flat
                ).item()
            )
            one -= len(alpha) / sum(alpha) * min(outputs[label], 0)
            expected += one / len(images)
    assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_members_train_as_if_each_were_alone(build):
    weights = [0.0, 0.1, 10.0]
    together = build("BPEFT", *SMALL, "TRAINER.BPEFT.KL_WEIGHTS", weights)
    start = {name: value.clone() for name, value in together.learner.state_dict().items()}
    steps(together)
    for g, weight in enumerate(weights):
        alone = build("BPEFT", *SMALL, "TRAINER.BPEFT.KL_WEIGHTS", [weight])
        alone.learner.load_state_dict({name: value[g : g + 1] for name, value in start.items()})
        steps(alone)
        for name, value in alone.learner.state_dict().items():
            ours = together.learner.state_dict()[name][g : g + 1]
            assert (ours != start[name][g : g + 1]).any(), name
            torch.testing.assert_close(ours, value, rtol=1e-4, atol=1e-6)


def test_the_adjustment_keeps_every_prediction_of_a_member(build):
    options = (*SMALL, "TRAINER.BPEFT.KL_WEIGHTS", [0.1])
    image = torch.randn(20, 3, 32, 32)
    plain, adjusted = (
        build("BPEFT", *options, "TRAINER.BPEFT.BASE_RATE", rate).model(image)
        for rate in (0.0, 1.5)
    )
    assert torch.equal(plain.argmax(1), adjusted.argmax(1))
    assert (adjusted.softmax(1).amax(1) > plain.softmax(1).amax(1)).all()
    torch.testing.assert_close(vacuity_of_logits(plain), vacuity_of_logits(adjusted))
    assert plain.shape == (20, len(CLASSES))


@pytest.mark.parametrize("precision", ["fp32", "amp", "fp16"])
def test_a_step_stays_on_the_gpu(build, precision):
    trainer = build("BPEFT", "TRAINER.BPEFT.PREC", precision)
    for name, value in traced_step(trainer).items():
        assert (value.device.type, value.dtype) == ("cuda", torch.float32), name


@pytest.mark.parametrize("weights", ["[0.1]", "[0]", "0.1"])
def test_one_member_is_no_ensemble_and_leaves_a_run(run, weights):
    logits, _ = run("run", "TRAINER.BPEFT.KL_WEIGHTS", weights, trainer="BPEFT")
    assert np.isfinite(logits).all()


def test_a_run_stores_probabilities_and_vacuity_and_can_be_tested_again(run, tmp_path):
    small = ("TRAINER.BPEFT.N_CTX", "4", "TRAINER.BPEFT.KL_WEIGHTS", "[0.0, 1.0]")
    logits, said = run("run", *small, trainer="BPEFT")
    assert "loss_incorrect" in said
    scores = vacuity_of_logits(torch.tensor(logits))
    assert ((scores > 0) & (scores < 1)).all()
    again, _ = run(
        "again", "--eval-only", f"--model-dir={tmp_path / 'run'}", *small, trainer="BPEFT"
    )
    np.testing.assert_allclose(again, logits, atol=1e-6)
    error = run("none", "TRAINER.BPEFT.KL_WEIGHTS", "[]", trainer="BPEFT", code=2)
    assert "KL_WEIGHTS must name at least one member" in error


@pytest.fixture
def outputs() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.randn(6, 4, dtype=torch.float64, generator=generator)


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.tensor([0, 1, 2, 3, 0, 2])


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
