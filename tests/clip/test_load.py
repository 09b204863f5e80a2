"""coop_cmp/clip/load.py: models by name and by file, and what is said when that fails."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path

import huggingface_hub
import numpy as np
import open_clip
import pytest
import torch
from dassl.data.transforms import build_transform
from open_clip.pretrained import get_pretrained_cfg
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from PIL import Image
from safetensors.torch import load_file, save_file

from coop_cmp.clip import load
from coop_cmp.clip.load import check_preprocessing, is_small, load_clip, read_state_dict
from coop_cmp.config.preprocessing import preprocessing
from coop_cmp.config.resolve import resolve
from coop_cmp.errors import UserError
from tests.conftest import ROOT, TINY

INPUT = {
    "PIXEL_MEAN": [0.48145466, 0.4578275, 0.40821073],
    "PIXEL_STD": [0.26862954, 0.26130258, 0.27577711],
    "INTERPOLATION": "bicubic",
    "RESIZE_MODE": "shortest",
}


def tiny_state(weights: Path) -> dict[str, torch.Tensor]:
    return load_file(weights)


def assert_same_weights(model: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    loaded = model.state_dict()
    assert loaded.keys() == state.keys()
    for name, value in state.items():
        torch.testing.assert_close(loaded[name], value, rtol=0, atol=0)


def picture() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 420, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_weights_beside_a_config_are_the_default_of_that_model(tiny_clip, tiny_weights):
    assert_same_weights(tiny_clip.model, tiny_state(tiny_weights))
    assert tiny_clip.image_size == (32, 32)
    assert "TinyCLIP.safetensors" in tiny_clip.weights


def test_a_loaded_model_is_frozen_and_in_eval_mode(tiny_clip):
    assert not tiny_clip.model.training
    assert not any(p.requires_grad for p in tiny_clip.model.parameters())


@pytest.mark.parametrize("wrap", [dict, lambda s: {"state_dict": s, "epoch": 3}])
def test_a_saved_state_dict_loads_also_with_the_module_prefix(wrap, tiny_weights, tmp_path):
    state = tiny_state(tiny_weights)
    path = tmp_path / "weights.pt"
    torch.save(wrap({f"module.{name}": value for name, value in state.items()}), path)
    assert_same_weights(load_clip("TinyCLIP", str(path)).model, state)


def test_a_torchscript_archive_like_openais_loads(tiny_weights, tmp_path):
    class Archive(torch.nn.Module):
        def __init__(self, state: dict[str, torch.Tensor]) -> None:
            super().__init__()
            self.register_buffer("input_resolution", torch.tensor(32))
            for name, value in state.items():
                module = self
                *path, last = name.split(".")
                for part in path:
                    if not hasattr(module, part):
                        module.add_module(part, torch.nn.Module())
                    module = getattr(module, part)
                module.register_buffer(last, value)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    state = tiny_state(tiny_weights)
    path = tmp_path / "ViT.pt"
    torch.jit.script(Archive(state)).save(str(path))
    assert_same_weights(load_clip("TinyCLIP", str(path)).model, state)


def test_openais_architectures_use_quick_gelu_and_others_their_own_activation(
    tiny_weights, monkeypatch
):
    def activation(name: str) -> str:
        model = load_clip(name, str(tiny_weights)).model
        return type(model.transformer.resblocks[0].mlp.gelu).__name__

    monkeypatch.setitem(load.OPENAI_NAMES, "Tiny/CLIP", "TinyCLIP")
    assert activation("Tiny/CLIP") == "QuickGELU"
    assert activation("TinyCLIP") == "GELU"


def test_fp16_stores_the_weights_in_half_precision_and_the_norms_in_single(tiny_weights):
    model = load_clip("TinyCLIP", precision="fp16").model
    assert model.visual.conv1.weight.dtype == torch.float16
    assert model.transformer.resblocks[0].attn.in_proj_weight.dtype == torch.float16
    assert model.ln_final.weight.dtype == torch.float32
    assert model.logit_scale.dtype == torch.float32


def test_token_rows_that_are_not_stored_are_drawn_like_the_stored_ones(tiny_weights, tmp_path):
    state = tiny_state(tiny_weights)
    rows = torch.arange(0, 49408, 100)
    trained = state["token_embedding.weight"][rows] * torch.linspace(0.5, 2, 32) + 0.1
    state |= {"token_embedding.rows": rows, "token_embedding.weight": trained}
    save_file(state, tmp_path / "rows.safetensors")
    tables = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        clip = load_clip("TinyCLIP", str(tmp_path / "rows.safetensors"))
        assert torch.initial_seed() == seed
        tables.append(clip.model.token_embedding.weight)
    table = tables[0]
    assert torch.equal(*tables)
    torch.testing.assert_close(table[rows], trained, rtol=0, atol=0)
    drawn = table[torch.arange(49408) % 100 != 0]
    assert len(drawn.unique(dim=0)) == len(drawn)
    spread = trained.std(0)
    assert ((drawn.mean(0) - trained.mean(0)).abs() < 0.05 * spread).all()
    torch.testing.assert_close(drawn.std(0), spread, rtol=0.05, atol=0)
    features = clip.model.encode_text(clip.tokenizer(["oboe", "lynx"]), normalize=True)
    assert (features[0] - features[1]).abs().max() > 1e-3


def test_an_unknown_backbone_is_named_with_the_closest_match():
    with pytest.raises(UserError, match=r'unknown backbone "VIT-B16".*did you mean "ViT-B/16"'):
        load_clip("VIT-B16")


def test_an_unknown_tag_or_missing_file_is_named_with_the_tags():
    with pytest.raises(UserError, match=r'"opnai".*did you mean "openai"'):
        load_clip("ViT-B/16", "opnai")
    with pytest.raises(UserError, match=r"no/such/file\.pt.*neither a file nor a tag"):
        load_clip("ViT-B/16", "no/such/file.pt")


def test_weights_of_another_architecture_are_refused_with_the_first_difference(
    tiny_weights, tmp_path
):
    state = tiny_state(tiny_weights)
    state["ln_final.weight"] = torch.ones(7)
    save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"ln_final\.weight is \[7\] where the model has \[32\]"):
        load_clip("TinyCLIP", str(tmp_path / "other.safetensors"))
    del state["ln_final.weight"]
    save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"ln_final\.weight is missing"):
        load_clip("TinyCLIP", str(tmp_path / "other.safetensors"))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_truncated_file_is_refused_with_its_path(suffix, tiny_weights, tmp_path):
    path = tmp_path / f"torn{suffix}"
    if suffix == ".pt":
        torch.save(tiny_state(tiny_weights), path)
        path.write_bytes(path.read_bytes()[:1000])
    else:
        path.write_bytes(tiny_weights.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"cannot read weights from .*torn"):
        load_clip("TinyCLIP", str(path))


def test_pickled_objects_are_never_executed(tmp_path):
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return (Path.touch, (marker,))

    torch.save({"state_dict": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="cannot read weights"):
        read_state_dict(tmp_path / "evil.pt")
    assert not marker.exists()


def test_without_a_network_the_message_says_what_to_fetch(monkeypatch, tmp_path):
    def offline(*args, **kwargs):
        raise OSError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"could not be downloaded.*Fetch https?://.*ViT-B-16\.pt"):
        load_clip("ViT-B/16")


def test_weights_of_clips_class_load_into_a_model_whose_tower_is_apart(tiny_weights, tmp_path):
    config = tmp_path / "TinyOther.json"
    config.write_text(json.dumps({**TINY, "custom_text": True}))
    open_clip.add_model_config(config)
    state = load_clip("TinyOther", str(tiny_weights)).model.text.state_dict()
    plain = tiny_state(tiny_weights)
    assert torch.equal(state["token_embedding.weight"], plain["token_embedding.weight"])


@pytest.mark.parametrize("scheme", ["local-dir", "hf-hub"])
def test_a_folder_or_repository_in_open_clips_format_is_a_model(
    scheme, tiny_weights, tiny_clip, tmp_path, monkeypatch
):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--model"
    folder = repository / "snapshots/first"
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("first")
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
    description = {"model_cfg": TINY, "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(description))
    name = {"local-dir": f"local-dir:{folder}", "hf-hub": "hf-hub:some/model"}[scheme]
    with pytest.raises(UserError, match="holds no weights"):
        load_clip(name)
    shutil.copy(tiny_weights, folder / "open_clip_model.safetensors")
    assert_same_weights(load_clip(name).model, tiny_clip.model.state_dict())
    cfg = resolve(ROOT, {}, {"TRAINER.NAME": "CoOp", "MODEL.BACKBONE.NAME": name}, {})
    theirs = open_clip.create_model_and_transforms(name)[2]
    assert torch.equal(build_transform(cfg, is_train=False)(picture()), theirs(picture()))
    assert not torch.equal(theirs(picture()), theirs(picture().crop((60, 0, 360, 300))))
    with pytest.raises(UserError, match=r"/nowhere .*has no open_clip_config\.json"):
        load_clip(f"{scheme}:some/nowhere")


def test_images_are_prepared_as_the_weights_want_them(monkeypatch):
    siglip = preprocessing("ViT-B-16-SigLIP", "webli")
    assert siglip["INPUT.PIXEL_MEAN"] == [0.5, 0.5, 0.5]
    assert siglip == preprocessing("ViT-B-16-SigLIP", "my_weights.pt")
    assert preprocessing("ViT-B-16", "dfn2b")["INPUT.RESIZE_MODE"] == "shortest"
    assert preprocessing("ViT-H-14-quickgelu", "dfn5b")["INPUT.RESIZE_MODE"] == "squash"
    assert preprocessing("ViT-B/16", "openai") == preprocessing("ViT-B-16", "openai")
    assert check_preprocessing(INPUT, "ViT-B/16", "openai") == []
    (line,) = check_preprocessing(INPUT | {"PIXEL_MEAN": [0.5] * 3}, "ViT-B/16", "openai")
    assert "PIXEL_MEAN is [0.5, 0.5, 0.5], but the weights" in line


def test_a_model_is_small_by_its_config(tiny_weights):
    assert is_small("TinyCLIP")
    for name in ("ViT-B/32", "RN50", "ViT-B-16-SigLIP", "MobileCLIP-S1", "NoSuchModel"):
        assert not is_small(name)


@pytest.mark.parametrize(
    ("name", "tag"),
    [("ViT-H-14-quickgelu", "dfn5b"), ("ViT-B-16-SigLIP", "webli"), ("ViT-B-16", "openai")],
)
def test_a_tags_images_are_prepared_as_open_clip_does_pixel_by_pixel(name, tag):
    given = {"TRAINER.NAME": "CoOp", "MODEL.BACKBONE.NAME": name, "MODEL.BACKBONE.WEIGHTS": tag}
    cfg = resolve(ROOT, {}, given, {})
    known = get_pretrained_cfg(name, tag)
    size = open_clip.get_model_config(name)["vision_cfg"]["image_size"]
    wanted = PreprocessCfg(**merge_preprocess_dict(PreprocessCfg(size=size), known))
    theirs = image_transform_v2(wanted, is_train=False)
    assert torch.equal(build_transform(cfg, is_train=False)(picture()), theirs(picture()))
