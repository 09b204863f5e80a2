"""Methods on other models than plain CLIP: trained, predicted with and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from safetensors.torch import save_file

import coop_cmp
from coop_cmp.predict.export import export
from tests.conftest import TINY
from tests.predict.test_export import by_snippet

SIDE = {"eva": 224}
WORDS = ["a", "photo", "of", "the", "cat", "dog", "tree", ".", "x", "X", "type"]
BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 64,
}
EVA = {"timm_model_name": "eva02_tiny_patch14_224", "timm_pool": "token", "image_size": 224}
TEXTS: dict[str, dict[str, Any]] = {
    "siglip": {"no_causal_mask": True, "pool_type": "last", "proj_bias": True, "vocab_size": 64},
    "eva": {},
    "hf": {"hf_model_name": "", "hf_pooler_type": "mean_pooler", "hf_proj_type": "linear"},
    "mobileclip": {"no_causal_mask": True},
}


def tokenizer_in(folder: Path) -> None:
    """Store a tokenizer of whole words, which begins with nothing and pads with 0."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = {word: i for i, word in enumerate(["[PAD]", "[END]", "[UNK]", "[CLS]", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing("$A [END]", None, [("[END]", 1)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", eos_token="[END]", unk_token="[UNK]"
    )
    fast.save_pretrained(folder)


@pytest.fixture
def backbone(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A small model of a kind in a folder in open_clip's format."""
    kind, folder = request.param, tmp_path / f"model-{request.param}"
    folder.mkdir()
    text = {**TINY["text_cfg"], **TEXTS[kind]}
    config: dict[str, Any] = {**TINY, "text_cfg": text, "custom_text": True}
    if kind in ("siglip", "hf"):
        tokenizer_in(folder)
        text["hf_tokenizer_name"] = "here"
    if kind == "siglip":
        config["init_logit_bias"] = -10
    if kind == "eva":
        config["vision_cfg"] = EVA
    if kind == "hf":
        (folder / "bert").mkdir()
        (folder / "bert/config.json").write_text(json.dumps(BERT))
        text["hf_model_name"] = str(folder / "bert")
    path = folder / "open_clip_config.json"
    path.write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {"resize_mode": "squash"}}))
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{folder}", load_weights=False, pretrained_text=False)
    state = {name: value.contiguous().clone() for name, value in model.state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")
    return f"local-dir:{folder}"


@pytest.mark.parametrize("backbone", TEXTS, indirect=True)
def test_methods_train_predict_and_export_on_other_towers(
    backbone, run, pictures, tmp_path, monkeypatch
):
    side = SIDE.get(backbone.rpartition("-")[2], 32)
    for trainer in ("ZeroshotCLIP", "CoOp", "CoOp_CMP", "KgCoOp", "CoCoOp"):
        options = ["MODEL.BACKBONE.NAME", backbone, "INPUT.SIZE", f"({side}, {side})"]
        if trainer == "CoOp":
            options += ["TRAINER.COOP.N_CTX", "2", "TRAINER.COOP.CLASS_TOKEN_POSITION", "middle"]
        logits, said = run(trainer, *options, trainer=trainer)
        assert "features differ" not in said
        predicted = coop_cmp.load(tmp_path / trainer).predict(pictures / "test")
        np.testing.assert_allclose(predicted.logits, logits, atol=2e-5)
        assert logits.std(0).min() > 0
        if trainer in ("CoOp_CMP", "ZeroshotCLIP"):
            export(tmp_path / trainer, tmp_path / "digits.safetensors")
            left = by_snippet(pictures / "test/tree/3.png", tmp_path, monkeypatch)
            assert left["about"]["preprocess"]["resize_mode"] == "squash"
            one = coop_cmp.load(tmp_path / trainer).predict(pictures / "test/tree/3.png")
            np.testing.assert_allclose(left["logits"], one.logits, atol=1e-5)
