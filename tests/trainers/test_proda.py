"""trainers/proda.py: the bound against a dense covariance, and the rounds of prompts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from coop_cmp import cmp_loss
from coop_cmp.clip import load_clip
from coop_cmp.errors import UserError
from coop_cmp.trainers.proda import margin_variance
from tests.trainers import plain
from tests.trainers.conftest import (
    CLASSES,
    assert_loss_and_gradients,
    loss_and_gradients,
    steps,
)

ALL = ("TRAINER.PRODA.PROMPT_BS", 8)


def dense_variance(samples: torch.Tensor, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """The variance from the covariance [E, C, C] of every feature, as the formula is written."""
    deviations = samples - samples.mean(0)
    covariance = torch.zeros(samples.shape[2], samples.shape[1], samples.shape[1]).double()
    for sample in deviations:
        covariance += sample.t()[:, :, None] * sample.t()[:, None, :]
    covariance /= len(samples) + 1
    rows = []
    for feature, y in zip(x, label, strict=True):
        pairs = (feature**2)[:, None, None] * covariance
        pairs = pairs.sum(0)
        rows.append(pairs[y, y] + pairs.diagonal() - 2 * pairs[y])
    return torch.stack(rows)


def random_samples(prompts: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    samples = F.normalize(torch.randn(prompts, 7, 24, generator=generator).double(), dim=-1)
    features = F.normalize(torch.randn(5, 24, generator=generator).double(), dim=-1)
    return samples, features, torch.tensor([0, 3, 3, 6, 1])


def test_the_variance_is_that_of_the_dense_covariance():
    samples, features, label = random_samples()
    torch.testing.assert_close(
        margin_variance(samples, features, label), dense_variance(samples, features, label)
    )


def test_the_variance_is_zero_for_the_true_class_and_never_negative():
    samples, features, label = random_samples()
    variance = margin_variance(samples.float(), features.float(), label)
    assert torch.equal(variance.gather(1, label[:, None]), torch.zeros(5, 1))
    assert variance.min() >= 0
    assert (variance > 0).sum() == variance.numel() - len(label)


def plain_samples(clip, contexts: torch.Tensor) -> torch.Tensor:
    """Text features [P, C, E]: of eight prompts two have the name in front, two in the middle."""
    samples = []
    for p, context in enumerate(contexts):
        m = len(context)
        first = {0: 0, 1: 0, 2: m // 2, 3: m // 2}.get(p, m)  # vectors before the name
        row = []
        for name in CLASSES:
            name_rows = clip.tokenizer([name.replace("_", " ")])[0]
            length = int(name_rows.argmax()) - 1
            name_rows = clip.model.token_embedding(name_rows[1 : 1 + length])
            if first == m:  # in a sentence the full stop may be one token with a bracket
                prompt = " ".join(["X"] * m) + f" {name.replace('_', ' ')}."
                rows, end = plain.embed(clip, prompt, context), plain.end_of(clip, prompt)
            else:
                stop = plain.embed(clip, ".")
                parts = [stop[:1], context[:first], name_rows, context[first:], stop[1:]]
                rows, end = torch.cat(parts)[:77], m + length + 2
            row.append(plain.text_feature(clip, rows, end))
        samples.append(torch.stack(row))
    return torch.stack(samples)


def test_the_loss_is_the_bound_plus_the_weighted_diversity(build):
    trainer = build("ProDA", *ALL, "TRAINER.PRODA.ALPHA", 0.7)
    clip, contexts = load_clip("TinyCLIP"), trainer.learner.ctx
    batch = trainer.train_loader_x[0]
    features = plain.image_features(clip, batch["img"])
    samples = plain_samples(clip, contexts)
    mean_logits = plain.logits_of(clip, features, samples.mean(0))
    scale = clip.model.logit_scale.exp()
    variance = dense_variance(samples, features, batch["label"])
    upper = F.cross_entropy(mean_logits + scale**2 / 2 * variance, batch["label"])
    nameless = [
        plain.text_feature(clip, plain.embed(clip, "X X X X .", context), end=6)
        for context in contexts
    ]
    cosines = [
        (a @ b).abs() for i, a in enumerate(nameless) for j, b in enumerate(nameless) if i != j
    ]
    assert_loss_and_gradients(trainer, upper + 0.7 * sum(cosines) / len(cosines))


def test_the_prediction_uses_the_mean_of_all_prompts_and_does_not_normalise_it(build):
    trainer = build("ProDA")
    clip = load_clip("TinyCLIP")
    mean = plain_samples(clip, trainer.learner.ctx).mean(0)
    image = trainer.test_loader[0]["img"]
    expected = plain.logits_of(clip, plain.image_features(clip, image), mean)
    torch.testing.assert_close(trainer.model(image), expected)
    assert mean.norm(dim=-1).max() < 1


def test_the_passes_of_a_step_share_the_memory(build, monkeypatch):
    monkeypatch.setattr("coop_cmp.trainers.base.activation_budget", lambda device: 400 << 20)
    assert build("CoOp").model.text_encoder.budget == 400 << 20
    assert build("ProDA", "MODEL.TEXT_BUDGET_MB", 8).model.text_encoder.budget == 2 << 20
    trainer, passes = build("ProDA", *ALL), []
    trainer.model.text_encoder.register_forward_hook(lambda *_: passes.append(1))
    steps(trainer, 1)
    assert trainer.model.text_encoder.budget * len(passes) == 400 << 20


def test_one_prompt_is_coop(build):
    one = ("TRAINER.PRODA.N_PROMPT", 1, "TRAINER.PRODA.PROMPT_BS", 1)
    proda = build("ProDA", *one)
    coop = build("CoOp", "TRAINER.COOP.N_CTX", 4)
    with torch.no_grad():
        coop.learner.ctx.copy_(proda.learner.ctx[0])
    batch = coop.train_loader_x[0]
    torch.testing.assert_close(proda.model(batch["img"]), coop.model(batch["img"]))
    torch.testing.assert_close(loss_and_gradients(proda)[0], loss_and_gradients(coop)[0])


def test_every_prompt_has_its_turn_in_every_round(build):
    learner = build("ProDA", "TRAINER.PRODA.PROMPT_BS", 2).learner
    rounds = [[p for i in range(4) for p in learner.of_step(4 * r + i)] for r in range(3)]
    for order in rounds:
        assert sorted(order) == list(range(8))
    assert rounds[0] != rounds[1]


def test_only_the_prompts_of_the_step_see_the_classes(build):
    trainer = build("ProDA", "TRAINER.PRODA.PROMPT_BS", 2, "TRAINER.PRODA.ALPHA", 0.0)
    _, gradients = loss_and_gradients(trainer)
    moved = gradients["ctx"].flatten(1).abs().sum(1).nonzero()[:, 0]
    assert sorted(moved.tolist()) == sorted(trainer.learner.of_step(0))


@pytest.mark.parametrize("penalty_on", ["mean", "bound"])
def test_the_penalty_is_on_the_logits_that_the_config_names(build, penalty_on):
    trainer = build("ProDA_CMP", "TRAINER.PRODA.PENALTY_ON", penalty_on)
    batch = trainer.train_loader_x[0]
    model, label = trainer.model, batch["label"]
    features = model.encode_image(batch["img"])
    logits = model.losses(features, label).logits
    if penalty_on == "bound":
        samples = model.samples(trainer.learner.of_step(0))
        variance = margin_variance(samples, features, label)
        logits = logits + model.logit_scale.exp() ** 2 / 2 * variance
    expected = cmp_loss(logits, label).item()
    assert steps(trainer, 1)[0]["cmp"] == pytest.approx(expected, rel=1e-5)


def test_wrong_settings_are_refused_by_name(build):
    with pytest.raises(UserError, match=r"N_PROMPT must be a multiple of PROMPT_BS.*got 8 and 3"):
        build("ProDA", "TRAINER.PRODA.PROMPT_BS", 3)
    with pytest.raises(UserError, match=r"PENALTY_ON must be mean or bound, got 'both'"):
        build("ProDA", "TRAINER.PRODA.PENALTY_ON", "both")
