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
from scipy.special import expit
from timm.models import register_model
from timm.models.eva import _create_eva
from timm.models.fastvit import _create_fastvit

import coop_cmp
from coop_cmp.errors import UserError
from coop_cmp.metrics import calibration_report
from coop_cmp.predict.export import export
from coop_cmp.report.groups import Group
from coop_cmp.report.page.details import pictures as details
from coop_cmp.runs.stored import StoredRun
from tests.commands import command
from tests.conftest import TINY
from tests.predict.test_export import by_snippet

SIDE = {"eva": 28, "mobileclip": 64}
WORDS = ["a", "photo", "of", "the", "cat", "dog", "tree", ".", "x", "X", "type"]
BIAS = -1.0
BERT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 64,
}
VISIONS: dict[str, dict[str, Any]] = {
    "eva": {"timm_model_name": "eva02_short", "timm_pool": "token", "image_size": 28},
    "mobileclip": {
        "timm_model_name": "fastvit_short",
        "timm_pool": "avg",
        "timm_proj": None,
        "image_size": 64,
    },
}
TEXTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "siglip": {"no_causal_mask": True, "pool_type": "last", "proj_bias": True, "vocab_size": 64},
    "eva": {},
    "hf": {"hf_model_name": "", "hf_pooler_type": "mean_pooler", "hf_proj_type": "linear"},
    "mobileclip": {"no_causal_mask": True},
}


@register_model
def eva02_short(**arguments: Any) -> Any:
    """An EVA tower of two blocks for images of four patches."""
    small = {"img_size": 28, "patch_size": 14, "embed_dim": 32, "depth": 2, "num_heads": 2}
    return _create_eva("eva02_tiny_patch14_224", **small, **arguments)


@register_model
def fastvit_short(**arguments: Any) -> Any:
    """An image tower as MobileCLIP's, with one narrow block at each of its four scales."""
    small = {"layers": (1,) * 4, "embed_dims": (16, 32, 32, 32), "mlp_ratios": (2,) * 4}
    return _create_fastvit("fastvit_t8", **small, token_mixers=("repmixer",) * 4, **arguments)


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
    if kind in ("siglip", "plain"):
        config["init_logit_bias"] = BIAS
    config["vision_cfg"] = VISIONS.get(kind, TINY["vision_cfg"])
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


@pytest.mark.parametrize("backbone", ["siglip", "eva", "hf", "mobileclip"], indirect=True)
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
        if trainer == "CoCoOp":
            with pytest.raises(UserError, match=r"no fixed classifier: .* for every image"):
                export(tmp_path / trainer, tmp_path / "digits.safetensors")
            continue
        export(tmp_path / trainer, tmp_path / "digits.safetensors")
        left = by_snippet(pictures / "test/tree/3.png", tmp_path, monkeypatch)
        assert left["about"]["preprocess"]["resize_mode"] == "squash"
        one = coop_cmp.load(tmp_path / trainer).predict(pictures / "test/tree/3.png")
        np.testing.assert_allclose(left["logits"], one.logits, atol=1e-5)


@pytest.mark.parametrize("backbone", ["siglip", "eva", "hf", "mobileclip"], indirect=True)
def test_half_precision_which_is_the_methods_default_works_on_other_towers(backbone, run):
    side = SIDE.get(backbone.rpartition("-")[2], 32)
    options = ("MODEL.BACKBONE.NAME", backbone, "INPUT.SIZE", f"({side}, {side})")
    half = (*options, "TRAINER.COOP.PREC", "fp16")
    expected, _ = run("single", *options, trainer="ZeroshotCLIP")
    found, _ = run("half", *half, trainer="ZeroshotCLIP")
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())
    learned, said = run("learned", *half, trainer="CoOp_CMP")
    assert "loss_cmp" in said
    assert np.isfinite(learned).all()


SIGMOID = ("MODEL.SCORES", "sigmoid", "INPUT.SIZE", "(32, 32)")


@pytest.mark.parametrize("backbone", ["plain"], indirect=True)
def test_sigmoid_scores_are_of_each_class_by_itself(
    backbone, run, pictures, tmp_path, monkeypatch, capsys
):
    options = ("MODEL.BACKBONE.NAME", backbone, *SIGMOID)
    softmax, _ = run("softmax", *options, "MODEL.SCORES", "softmax", trainer="ZeroshotCLIP")
    logits, said = run("run", *options, trainer="ZeroshotCLIP")
    np.testing.assert_allclose(logits, softmax + BIAS, atol=1e-5)
    assert "nll: undefined" in said
    stored = StoredRun.of(tmp_path / "run")
    metrics, labels = stored.metrics(), stored.predictions.labels
    assert metrics["nll"] is metrics["brier"] is None
    probabilities = expit(logits.astype(np.float64))
    confidence = probabilities.max(1)
    assert metrics["confidence"] == pytest.approx(confidence.mean())
    assert metrics["accuracy"] == (probabilities.argmax(1) == labels).mean()
    assert stored.outcomes.confidence == pytest.approx(confidence)

    image = pictures / "test/tree/3.png"
    predicted = coop_cmp.load(tmp_path / "run").predict(image)
    np.testing.assert_allclose(predicted.probabilities, expit(predicted.logits))
    export(tmp_path / "run", tmp_path / "digits.safetensors")
    left = by_snippet(image, tmp_path, monkeypatch)
    np.testing.assert_allclose(left["logits"], predicted.logits, atol=1e-5)
    np.testing.assert_allclose(left["probabilities"], predicted.probabilities[0], atol=1e-5)

    folder = str(tmp_path / "run")
    assert command("metrics")([folder]) == 0
    assert f"{100 * metrics['ece']:.2f}" in capsys.readouterr().out
    with pytest.raises(UserError, match="nll: undefined for sigmoid scores"):
        command("metrics")([folder, "--keys", "nll"])
    with pytest.raises(UserError, match="defined for softmax scores"):
        command("calibrate")(["temperature", folder, "--labels", "fixed:2"])
    found = details(Group([stored]), {})
    assert "defined for softmax" in found["problem"]
    json.dumps(found, allow_nan=False)


def test_sigmoid_scores_need_a_bias_and_a_method_with_logits(run):
    assert "TinyCLIP has none" in run("run", *SIGMOID, code=2)
    assert "shares of evidence" in run("run", *SIGMOID, trainer="BPEFT", code=2)


def test_metrics_of_every_class_take_sigmoid_scores():
    logits, labels = torch.tensor([[4.0, 4.0], [4.0, -4.0]]), torch.tensor([0, 1])
    found = calibration_report(logits, labels, from_logits=True, scores="sigmoid")
    high, low = expit(4), expit(-4)
    assert found["ece"] == pytest.approx(high - 0.5)
    assert np.isnan(found["entropy"])
    keys = ["classwise_ece"]
    found = calibration_report(logits, labels, from_logits=True, scores="sigmoid", keys=keys)
    # Class 0: twice the probability high and once right; class 1: high and wrong, low and right.
    expected = (high - 0.5 + (high + 1 - low) / 2) / 2
    assert found["classwise_ece"] == pytest.approx(expected)
