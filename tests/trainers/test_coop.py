"""trainers/coop.py and zeroshot.py against plain prompts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from coop_cmp.clip import load_clip
from tests.trainers import plain
from tests.trainers.conftest import CLASSES, assert_loss_and_gradients


def test_untrained_coop_from_words_is_zero_shot_clip(build):
    zero_shot = build("ZeroshotCLIP")
    coop = build("CoOp", "TRAINER.COOP.CTX_INIT", "a photo of a")
    image = coop.test_loader[0]["img"]
    torch.testing.assert_close(coop.model(image), zero_shot.model(image), rtol=0, atol=1e-5)


@pytest.mark.parametrize("class_specific", [False, True])
def test_the_loss_and_its_gradient_are_those_of_prompts_built_one_by_one(build, class_specific):
    trainer = build("CoOp", "TRAINER.COOP.N_CTX", 3, "TRAINER.COOP.CSC", class_specific)
    clip, context = load_clip("TinyCLIP"), trainer.learner.ctx
    features = []
    for c, name in enumerate(CLASSES):
        prompt = f"X X X {name.replace('_', ' ')}."
        features.append(
            plain.prompt_feature(clip, prompt, context[c] if class_specific else context)
        )
    batch = trainer.train_loader_x[0]
    logits = plain.logits_of(clip, plain.image_features(clip, batch["img"]), torch.stack(features))
    assert_loss_and_gradients(trainer, F.cross_entropy(logits, batch["label"]))


def test_words_decide_the_number_of_vectors_and_share_them(build):
    words = ("TRAINER.COOP.CTX_INIT", "a_photo_of_a", "TRAINER.COOP.N_CTX", 16)
    learner = build("CoOp", *words, "TRAINER.COOP.CSC", True).learner
    assert learner.ctx.shape == (4, 32)
