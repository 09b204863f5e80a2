"""trainers/maple.py and coop_cmp/clip/vision.py: what stands in which layer of which tower."""

from __future__ import annotations

import pytest
import timm
import torch
import torch.nn.functional as F

from coop_cmp.clip import ImageTower, load_clip
from coop_cmp.errors import UserError
from tests.trainers import plain
from tests.trainers.conftest import CLASSES, assert_loss_and_gradients


def plain_image_feature(visual, image, prompts):
    """The normalised feature [E] of one image [3, H, W], token list by token list."""
    patches = visual.conv1(image[None])[0].flatten(1).t()  # [N, d]
    tokens = torch.cat([visual.class_embedding[None], patches]) + visual.positional_embedding
    x = visual.ln_pre(torch.cat([tokens, prompts[0]])[None])
    for i, block in enumerate(visual.transformer.resblocks):
        if 0 < i < len(prompts):
            x = torch.cat([x[:, : -len(prompts[i])], prompts[i][None]], dim=1)
        x = block(x)
    return F.normalize(visual.ln_post(x[0, 0]) @ visual.proj, dim=-1)


@pytest.mark.parametrize("words", ["a photo of a", ""])
def test_the_loss_and_its_gradient_are_those_of_single_images_and_classes(build, words):
    trainer = build("MaPLe", "TRAINER.MAPLE.CTX_INIT", words)
    clip, weights = load_clip("TinyCLIP"), dict(trainer.learner.named_parameters())
    deep = [weights["compound_prompts_text.0"]]
    text = []
    for name in (name.replace("_", " ") for name in CLASSES):
        prompt = f"{words or 'X X'} {name}."
        text.append(plain.prompt_feature(clip, prompt, weights["ctx"], deep))
    prompts = [
        weights["ctx"] @ weights["proj.weight"].t() + weights["proj.bias"],
        deep[0] @ weights["compound_prompt_projections.0.weight"].t()
        + weights["compound_prompt_projections.0.bias"],
    ]
    batch = trainer.train_loader_x[0]
    image = [plain_image_feature(clip.model.visual, one, prompts) for one in batch["img"]]
    logits = plain.logits_of(clip, torch.stack(image), torch.stack(text))
    assert_loss_and_gradients(trainer, F.cross_entropy(logits, batch["label"]))


def test_the_first_vectors_are_the_first_words_and_the_others_stay(build):
    trainer = build("MaPLe", classnames=["cat"])
    clip = load_clip("TinyCLIP")
    words = plain.embed(clip, "a photo of a cat.")
    assert torch.equal(trainer.learner.ctx, words[1:3])
    torch.testing.assert_close(
        trainer.model.text_encoder(trainer.learner.layout, trainer.learner.ctx)[0],
        clip.model.encode_text(clip.tokenizer(["a photo of a cat."]))[0],
    )


def test_shallow_prompts_need_no_deeper_ones(build):
    learner = build("MaPLe", "TRAINER.MAPLE.PROMPT_DEPTH", 1).learner
    assert set(learner.state_dict()) == {"ctx", "proj.weight", "proj.bias"}


def test_prompts_of_nine_layers_enter_blocks_one_to_eight_of_both_towers(build):
    trainer = build("MaPLe", model="DeepCLIP")
    clip = trainer.model.text_encoder.clip
    inputs: dict[str, list] = {"text": [], "image": []}

    def watch(tower, key):
        for block in tower.resblocks:
            block.register_forward_pre_hook(lambda _, args: inputs[key].append(args[0].detach()))

    watch(clip.visual.transformer, "image")
    watch(clip.transformer, "text")
    trainer.model.text_encoder.kind = "naive"  # the blocks themselves, not their parts
    with torch.no_grad():
        trainer.model(trainer.test_loader[0]["img"][:1])
        tokens = trainer.learner.image_prompts()
    assert {x.shape[1] for x in inputs["image"]} == {199}
    vectors = list(trainer.learner.compound_prompts_text)
    assert (len(inputs["image"]), len(inputs["text"]), len(vectors)) == (12, 12, 8)
    for i in range(12):
        replaced = 1 <= i <= 8
        image_tokens, text_tokens = inputs["image"][i][0, -2:], inputs["text"][i][0, 1:3]
        assert torch.equal(image_tokens, tokens[min(i, 8)]) == replaced
        assert torch.equal(text_tokens, vectors[min(max(i, 1), 8) - 1]) == replaced


def test_without_prompts_the_features_are_the_librarys(tiny_clip):
    visual, image = tiny_clip.model.visual, torch.randn(3, 3, 32, 32)
    none = torch.zeros(0, 64)
    torch.testing.assert_close(ImageTower("T", visual)(image, [none]), visual(image))


@pytest.mark.parametrize("depth", [0, 3])
def test_a_depth_that_the_towers_do_not_have_is_refused(build, depth):
    with pytest.raises(UserError, match=f"PROMPT_DEPTH must be .* 1.*got {depth}"):
        build("MaPLe", "TRAINER.MAPLE.PROMPT_DEPTH", depth)


def test_fewer_words_than_vectors_are_refused(build):
    with pytest.raises(UserError, match=r'"a photo of a" has fewer words than N_CTX \(5\)'):
        build("MaPLe", "TRAINER.MAPLE.N_CTX", 5)


def test_a_convolutional_image_tower_is_refused(build):
    for model in ("TinyResNet", "TinyTimm"):
        with pytest.raises(UserError, match=f"{model} has no plain sequence of image"):
            build("MaPLe", model=model)
    with pytest.raises(UserError, match="needs a vision transformer such as ViT-B/16, got RN50"):
        build("MaPLe", model="RN50")


class Features(torch.nn.Module):
    """A plain vision transformer that pools all of its patches, as timm's for SigLIP."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = timm.create_model(
            "vit_tiny_patch16_224", img_size=32, depth=2, global_pool="avg", num_classes=0
        )
        self.image_size = 32

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.trunk(image)


def test_a_tower_of_timm_that_pools_all_patches_leaves_out_the_learned_tokens():
    torch.manual_seed(0)
    visual, image = Features().eval(), torch.randn(2, 3, 32, 32)
    tower = ImageTower("timm", visual)
    assert (tower.width, len(tower.blocks)) == (192, 2)
    torch.testing.assert_close(tower(image, [torch.zeros(0, 192)]), visual(image))
    seen: list[int] = []
    handle = visual.trunk.norm.register_forward_pre_hook(lambda _, a: seen.append(a[0].shape[1]))
    tokens = torch.randn(3, 192)
    assert (tower(image, [tokens, tokens]) - visual(image)).abs().max() > 1e-3
    assert len(set(seen)) == 1  # with and without them
    handle.remove()


def test_a_tower_that_rotates_by_place_takes_no_further_tokens():
    class Rotated(Features):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = timm.create_model("eva02_tiny_patch14_224", depth=1, num_classes=0)
            self.image_size = 224

    with pytest.raises(UserError, match=r"EVA02: its image tower takes no further tokens"):
        ImageTower("EVA02", Rotated().eval())
