"""trainers/clipft.py against the library's own forward pass and torch's own optimiser."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from coop_cmp.clip import load_clip, read_state_dict
from coop_cmp.trainers.clipft import contrastive_loss
from tests.trainers.conftest import CLASSES, steps

ADAMW = (
    "OPTIM.NAME", "adamw", "OPTIM.LR", 1e-3, "OPTIM.WEIGHT_DECAY", 0.1, "OPTIM.ADAM_BETA2", 0.98,
)  # fmt: skip


def class_logits(model: nn.Module, tokens: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    text = F.normalize(model.encode_text(tokens), dim=-1)
    return model.logit_scale.exp() * F.normalize(model.encode_image(image), dim=-1) @ text.t()


@pytest.mark.parametrize("model", ["TinyCLIP", "TinyResNet"])
def test_three_steps_are_those_of_a_plain_loop(build, model):
    trainer = build("CLIPFT", *ADAMW, "TRAINER.CLIPFT.MAX_NORM", 0.5, model=model)
    reports = steps(trainer)

    clip = load_clip(model)
    clip.model.requires_grad_(True).logit_scale.requires_grad_(False)
    tokens = clip.tokenizer([f"a photo of a {name.replace('_', ' ')}." for name in CLASSES])
    optimizer = torch.optim.AdamW(
        clip.model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1
    )
    for batch, report in zip(trainer.train_loader_x, reports, strict=True):
        loss = F.cross_entropy(class_logits(clip.model, tokens, batch["img"]), batch["label"])
        assert report["loss"] == pytest.approx(loss.item(), rel=1e-3)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(clip.model.parameters(), 0.5)
        optimizer.step()
    trained = dict(trainer.learner.named_parameters())
    for name, value in clip.model.named_parameters():
        # AdamW divides by the gradient's size: where it is rounding only, so is the step.
        assert (trained[name] - value).abs().mean() < 2e-5, name


def test_a_large_gradient_is_cut_to_its_largest_norm(build):
    plain = ("OPTIM.NAME", "sgd", "OPTIM.LR", 0.1, "OPTIM.WEIGHT_DECAY", 0.0)
    trainer = build("CLIPFT", *plain, "TRAINER.CLIPFT.MAX_NORM", 0.25)
    before = nn.utils.parameters_to_vector(trainer.trained()).clone()
    steps(trainer, 1)
    change = nn.utils.parameters_to_vector(trainer.trained()) - before
    assert change.norm().item() == pytest.approx(0.1 * 0.25, rel=1e-2)


def test_the_optimiser_has_the_configured_eps(build):
    (group,) = build("CLIPFT", *ADAMW, "TRAINER.CLIPFT.EPS", 1e-5).optim.param_groups
    assert (group["eps"], group["betas"]) == (1e-5, (0.9, 0.98))


def test_images_of_one_class_do_not_compete_in_the_contrastive_loss():
    products, label = torch.randn(5, 5), torch.tensor([1, 0, 1, 2, 0])
    terms = []
    for table in (products, products.t()):
        for i in range(5):
            rivals = [table[i, j] for j in range(5) if j == i or label[j] != label[i]]
            terms.append(torch.stack(rivals).logsumexp(0) - table[i, i])
    torch.testing.assert_close(contrastive_loss(products, label), torch.stack(terms).mean())


def test_contrastive_training_pairs_images_with_their_classes_captions(build):
    trainer = build("CLIPFT", "TRAINER.CLIPFT.MODE", "FT-Contrastive")
    batch = trainer.train_loader_x[0]
    features = trainer.model.encode_image(batch["img"])
    step = trainer.model.losses(features, batch["label"])
    logits, terms = step.logits, step.losses

    clip = load_clip("TinyCLIP")
    tokens = clip.tokenizer([f"a photo of a {name.replace('_', ' ')}." for name in CLASSES])
    expected = class_logits(clip.model, tokens, batch["img"])
    seen = batch["label"].unique()
    assert 1 < len(seen) < len(CLASSES)
    torch.testing.assert_close(logits[:, seen], expected[:, seen])
    absent = [c for c in range(len(CLASSES)) if c not in seen]
    assert (logits[:, absent] == float("-inf")).all()
    loss = contrastive_loss(expected[:, batch["label"]], batch["label"])
    torch.testing.assert_close(terms["loss_contrastive"], loss)


def test_the_text_tower_and_the_scale_are_trained_only_if_asked_for(build):
    before = load_clip("TinyCLIP").model.state_dict()
    for text, scale in ((True, False), (False, False), (False, True)):
        options = ("TRAINER.CLIPFT.TRAIN_TEXT", text, "TRAINER.CLIPFT.TRAIN_SCALE", scale)
        trainer = build("CLIPFT", *ADAMW, *options)
        steps(trainer)
        after = trainer.learner.state_dict()
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert any(name.startswith("visual.") for name in changed)
        assert ("text_projection" in changed) == text
        assert ("token_embedding.weight" in changed) == text
        assert ("logit_scale" in changed) == scale


def test_batch_normalisation_keeps_clips_statistics(build):
    trainer = build("CLIPFT", *ADAMW, model="TinyResNet")
    before = {k: v.clone() for k, v in trainer.learner.state_dict().items() if "running" in k}
    assert before
    steps(trainer)
    after = trainer.learner.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert not any(module.training for module in trainer.learner.modules())


def test_a_checkpoint_serves_as_the_weights_of_other_methods(build, tmp_path):
    trainer = build("CLIPFT", *ADAMW)
    steps(trainer)
    trainer.save_model(0, str(tmp_path))
    path = tmp_path / "clip" / "model.pth.tar-1"
    assert all(v.is_contiguous() for v in read_state_dict(path).values())
    image = trainer.test_loader[0]["img"]
    zero_shot = build("ZeroshotCLIP", "MODEL.BACKBONE.WEIGHTS", str(path))
    torch.testing.assert_close(zero_shot.model(image), trainer.model(image))
