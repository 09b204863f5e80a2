"""What is published of the methods: sizes for ViT-B/16, spread of random prompts, precision."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import open_clip
import pytest
import torch
from torch import nn

from coop_cmp.config import SETTINGS
from coop_cmp.errors import UserError
from coop_cmp.trainers.cocoop import ConditionalPromptLearner
from coop_cmp.trainers.coop import PromptLearner
from coop_cmp.trainers.maple import MultiModalPromptLearner
from coop_cmp.trainers.proda import PromptDistribution
from tests.trainers.conftest import steps

NAMES = ["cat", "dog", "tree"]


@pytest.fixture
def vit() -> Any:
    """What the learners see of CLIP ViT-B/16."""
    torch.manual_seed(0)
    text = SimpleNamespace(embedding=nn.Embedding(49408, 512), width=512, embed_dim=512)
    return SimpleNamespace(text=text, tokenizer=open_clip.get_tokenizer("ViT-B-16"))


def settings(node: str, **changes: Any) -> Any:
    """A method's node with its declared defaults."""
    beginning = f"TRAINER.{node}."
    defaults = {
        key.removeprefix(beginning): setting.default
        for key, setting in SETTINGS.items()
        if key.startswith(beginning)
    }
    return SimpleNamespace(**defaults | changes)


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def assert_published_spread(vectors: torch.Tensor) -> None:
    """Normal with mean 0 and deviation 0.02, as far as a sample of that size can tell."""
    flat = vectors.detach().flatten()
    assert flat.std().item() == pytest.approx(0.02, rel=5 / (2 * len(flat)) ** 0.5)
    assert abs(flat.mean().item()) < 5 * 0.02 / len(flat) ** 0.5
    assert flat.abs().max() > 0.06  # no uniform distribution has this deviation and such tails


def test_coop_learns_16_vectors(vit):
    learner = PromptLearner(settings("COOP"), vit, NAMES)
    assert learner.ctx.shape == (16, 512)
    assert size(learner) == 8_192
    assert_published_spread(learner.ctx)
    own = PromptLearner(settings("COOP"), vit, NAMES, class_specific=True)
    assert own.ctx.shape == (3, 16, 512)
    assert_published_spread(own.ctx)


def test_cocoop_adds_a_network_with_a_sixteenth_of_the_features(vit):
    learner = ConditionalPromptLearner(settings("COCOOP", CTX_INIT="a photo of a"), vit, NAMES)
    assert learner.ctx.shape == (4, 512)
    assert learner.meta_net.linear1.weight.shape == (32, 512)
    assert learner.meta_net.linear2.weight.shape == (512, 32)
    assert size(learner) == 35_360
    vit.text.embed_dim = 1024  # of RN50
    learner = ConditionalPromptLearner(settings("COCOOP", CTX_INIT="a photo of a"), vit, NAMES)
    assert size(learner) == 100_928


def test_proda_learns_32_prompts_a_quarter_at_each_other_place(vit):
    learner = PromptDistribution(settings("PRODA"), vit, NAMES, seed=1)
    assert learner.ctx.shape == (32, 16, 512)
    assert size(learner) == 262_144
    assert_published_spread(learner.ctx)
    places = {place: len(prompts) for place, prompts in learner.places.items()}
    assert places == {"front": 8, "middle": 8, "end": 16}
    assert len(learner.of_step(0)) == 4


def test_maple_learns_two_vectors_and_a_map_in_nine_layers(vit):
    learner = MultiModalPromptLearner(settings("MAPLE"), vit, NAMES, image_width=768)
    assert learner.ctx.shape == (2, 512)
    assert len(learner.compound_prompts_text) == len(learner.compound_prompt_projections) == 8
    assert size(learner) == 3_555_072
    first, *others = learner.compound_prompt_projections
    assert all(torch.equal(first.weight, layer.weight) for layer in others)
    assert len({layer.weight.data_ptr() for layer in (first, *others)}) == 8
    assert not torch.equal(first.weight, learner.proj.weight)
    assert_published_spread(torch.cat(list(learner.compound_prompts_text)))
    assert_published_spread(
        MultiModalPromptLearner(settings("MAPLE", CTX_INIT="", N_CTX=20), vit, NAMES, 768).ctx
    )


def test_kgcoop_starts_from_four_words(vit):
    node = settings("KGCOOP")
    learner = PromptLearner(node, vit, NAMES)
    assert node.W == 8.0
    assert learner.ctx.shape == (4, 512)
    words = vit.tokenizer(["a photo of a"])[0, 1:5]
    assert torch.equal(learner.ctx, vit.text.embedding(words))


def test_a_checkpoint_of_another_method_is_no_start(build, tmp_path):
    source = build("MaPLe")
    source.save_model(0, str(tmp_path))
    (file,) = tmp_path.glob("*/model.pth.tar-1")
    with pytest.raises(UserError, match=r"INIT_WEIGHTS: .* holds nothing that CoCoOp learns"):
        build("CoCoOp", "MODEL.INIT_WEIGHTS", str(file), "TRAINER.COCOOP.N_CTX", 3)


def test_training_starts_from_the_checkpoint_that_init_weights_names(build, tmp_path):
    source = build("CoOp")
    steps(source)
    source.save_model(0, str(tmp_path))
    (file,) = tmp_path.glob("*/model.pth.tar-1")
    target = build("CoOp", "MODEL.INIT_WEIGHTS", str(file), "SEED", 2)
    assert torch.equal(target.learner.ctx, source.learner.ctx)
    assert not torch.equal(build("CoOp").learner.ctx, source.learner.ctx)
    steps(target)
    assert not torch.equal(target.learner.ctx, source.learner.ctx)
