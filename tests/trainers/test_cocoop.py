"""trainers/cocoop.py against one image and one class at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from coop_cmp.clip import load_clip
from tests.trainers import plain
from tests.trainers.conftest import CLASSES, assert_loss_and_gradients

WORDS = ("TRAINER.COCOOP.CTX_INIT", "a photo of a")


@pytest.mark.parametrize("model", ["TinyCLIP", "TinyResNet", "TinyTimm"])
def test_the_loss_and_its_gradient_are_those_of_a_loop_over_images_and_classes(build, model):
    trainer = build("CoCoOp", *WORDS, model=model)
    clip, learner = load_clip(model), trainer.learner
    weights = dict(learner.named_parameters())
    batch = trainer.train_loader_x[0]
    logits = []
    for feature in plain.image_features(clip, batch["img"]):
        hidden = (
            weights["meta_net.linear1.weight"] @ feature + weights["meta_net.linear1.bias"]
        ).clamp(min=0)
        shift = weights["meta_net.linear2.weight"] @ hidden + weights["meta_net.linear2.bias"]
        text = []
        for name in CLASSES:
            prompt = f"a photo of a {name.replace('_', ' ')}."
            text.append(plain.prompt_feature(clip, prompt, learner.ctx + shift))
        logits.append(plain.logits_of(clip, feature[None], torch.stack(text))[0])
    assert_loss_and_gradients(trainer, F.cross_entropy(torch.stack(logits), batch["label"]))


def test_a_batch_is_the_same_as_its_images_one_by_one(build):
    trainer = build("CoCoOp", *WORDS, "MODEL.TEXT_BUDGET_MB", 1)
    image = trainer.test_loader[0]["img"]
    one_by_one = torch.cat([trainer.model(part) for part in image.split(1)])
    torch.testing.assert_close(trainer.model(image), one_by_one)


def test_the_evaluation_does_not_take_one_classifier_for_all_images(build):
    trainer = build("CoCoOp", *WORDS)
    seen = []
    trainer.evaluator.process = lambda logits, label: seen.append(logits)
    trainer.evaluator.evaluate = lambda: {"accuracy": 0.0}
    trainer.test()
    expected = [trainer.model(batch["img"]) for batch in trainer.test_loader]
    torch.testing.assert_close(seen, expected)
