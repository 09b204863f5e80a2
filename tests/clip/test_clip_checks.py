"""What is refused before a model is used."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from open_clip.model import CLIP
from torch import nn

from coop_cmp.clip import LoadedCLIP, TextEncoder
from coop_cmp.clip.checks import check_preprocessing, check_text_encoder
from coop_cmp.devices import set_threads
from coop_cmp.errors import UserError
from tests.small_clip import small_clip, tokenizer

INPUT = {
    "PIXEL_MEAN": [0.48145466, 0.4578275, 0.40821073],
    "PIXEL_STD": [0.26862954, 0.26130258, 0.27577711],
    "INTERPOLATION": "bicubic",
}


@pytest.mark.parametrize("kind", ["shared", "naive"])
@pytest.mark.parametrize("model", ["vit", "rn50", "openai"])
def test_plain_towers_are_accepted(model, kind):
    clip = LoadedCLIP(small_clip(model), tokenizer, model, "", "", (16, 16))
    check_text_encoder(clip, TextEncoder(clip.model, kind))


def test_a_tower_with_parts_that_the_encoder_does_not_know_is_refused():
    model = deepcopy(small_clip("vit"))
    attention = model.transformer.resblocks[1].attn
    attention.register_forward_hook(lambda module, args, out: (1.5 * out[0], *out[1:]))
    clip = LoadedCLIP(model, tokenizer, "scaled", "", "", (16, 16))
    with pytest.raises(UserError, match=r'scaled: its text tower .* MODEL.TEXT_ENCODER to "naive"'):
        check_text_encoder(clip, TextEncoder(model))
    check_text_encoder(clip, TextEncoder(model, "naive"))


@pytest.mark.parametrize("part", ["qk_norm", "scale_heads", "scale_attn"])
@torch.no_grad()
def test_open_clips_own_variants_of_a_block_are_refused(part):
    vision = {"image_size": 16, "patch_size": 8, "width": 16, "layers": 1, "head_width": 8}
    torch.manual_seed(0)
    model = CLIP(16, vision, {"width": 16, "heads": 2, "layers": 2, part: True}).eval()
    for name, value in model.named_parameters():  # scales that are 1 at first would be no test
        value.mul_(1 + 0.3 * torch.rand_like(value) * name.startswith("transformer"))
    clip = LoadedCLIP(model, tokenizer, part, "", "", (16, 16))
    with pytest.raises(UserError, match=rf"{part}: its text tower is not encoded as the model"):
        check_text_encoder(clip, TextEncoder(model))


def test_images_must_be_prepared_as_the_weights_want_them():
    check_preprocessing(INPUT, "ViT-B/16", "openai")
    check_preprocessing(INPUT | {"PIXEL_MEAN": [0, 0, 0]}, "ViT-B/16", "file.pt (sha256 0)")
    with pytest.raises(UserError, match=r"PIXEL_MEAN is \[0.5, .*trained with \[0.48145466"):
        check_preprocessing(INPUT | {"PIXEL_MEAN": [0.5, 0.5, 0.5]}, "ViT-B/16", "openai")
    with pytest.raises(UserError, match=r"INTERPOLATION is bilinear, .* trained with bicubic"):
        check_preprocessing(INPUT | {"INTERPOLATION": "bilinear"}, "RN50", "openai")
    with pytest.raises(UserError, match=r"PIXEL_MEAN .*trained with \[0.5, 0.5, 0.5\]"):
        check_preprocessing(INPUT, "ViT-B-16-SigLIP", "webli")


@pytest.mark.parametrize(("width", "given", "threads"), [(64, "", 1), (3000, "", 3), (64, "3", 3)])
def test_a_small_model_runs_on_one_thread_unless_the_user_chose(width, given, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    before = torch.get_num_threads()
    model = nn.Sequential(
        nn.Embedding(100_000, width, device="meta"), nn.Linear(width, width, device="meta")
    )
    try:
        torch.set_num_threads(3)
        set_threads(model, torch.device("cpu"))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
