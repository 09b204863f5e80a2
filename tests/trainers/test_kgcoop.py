"""trainers/kgcoop.py: the anchor and the loss."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from coop_cmp.clip import load_clip
from tests.trainers import plain
from tests.trainers.conftest import CLASSES, assert_loss_and_gradients, steps


def distance(trainer) -> float:
    """The unweighted distance of the classifier to its anchor before any training."""
    return steps(trainer, 1)[0]["loss_kg"] / 8.0


@pytest.mark.parametrize("dataset", ["Caltech101", "StanfordCars", "SUN397", "ImageNet"])
def test_prompt_and_anchor_start_equal_where_the_template_is_the_initial_prompt(build, dataset):
    assert distance(build("KgCoOp", "DATASET.NAME", dataset)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("dataset", "template"),
    [
        ("OxfordPets", "a photo of a {}, a type of pet."),
        ("DescribableTextures", "a photo of a {}, a type of texture."),
        ("EuroSAT", "a centered satellite photo of {}."),
    ],
)
def test_the_anchor_is_the_authors_template(build, dataset, template):
    trainer = build("KgCoOp", "DATASET.NAME", dataset)
    clip = load_clip("TinyCLIP")
    texts = clip.tokenizer([template.format(name.replace("_", " ")) for name in CLASSES])
    torch.testing.assert_close(
        trainer.model.anchor(), F.normalize(clip.model.encode_text(texts), dim=-1)
    )
    assert distance(trainer) > 1e-4


def test_the_loss_is_cross_entropy_plus_the_weighted_distance(build):
    trainer = build("KgCoOp", "DATASET.NAME", "OxfordPets", "TRAINER.KGCOOP.W", 3.0)
    clip, context = load_clip("TinyCLIP"), trainer.learner.ctx
    text, anchor = [], []
    for name in (name.replace("_", " ") for name in CLASSES):
        text.append(plain.prompt_feature(clip, f"a photo of a {name}.", context))
        anchor.append(plain.prompt_feature(clip, f"a photo of a {name}, a type of pet."))
    batch = trainer.train_loader_x[0]
    logits = plain.logits_of(clip, plain.image_features(clip, batch["img"]), torch.stack(text))
    cosines = [
        F.cosine_similarity(a, b, dim=0, eps=1e-7) for a, b in zip(text, anchor, strict=True)
    ]
    expected = F.cross_entropy(logits, batch["label"]) + 3.0 * (1 - sum(cosines) / len(cosines))
    assert_loss_and_gradients(trainer, expected)
