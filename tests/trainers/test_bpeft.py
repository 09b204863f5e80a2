"""trainers/bpeft.py: its loss by a plain loop, independent members, and a run from end to end."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from coop_cmp.trainers.bpeft import vacuity_of_logits
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
