"""Every model that open_clip describes, with its text tower cut to two small layers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coop_cmp.clip import (
    LoadedCLIP,
    TextEncoder,
    check_text_encoder,
    context_layout,
    text_layout,
)
from coop_cmp.clip.load import build
from coop_cmp.clip.prompts import words_by
from coop_cmp.clip.tower import TextTower, planned_way
from coop_cmp.errors import UserError
from tests.clip.test_text import Library
from tests.commands import command
from tests.conftest import ROOT
from tests.small_clip import vit

MODELS = sorted(p.stem for p in Path(open_clip.__file__).parent.glob("model_configs/*.json"))
NAMES = ["cat", "yorkshire_terrier", "golf ball", "ox"]
TEXTS = ["a photo of a cat.", "an old yorkshire terrier", "ox"]
VECTORS = 4
VISION = vit(16, 8, 32, 1, 16)
# What a tokenizer of Hugging Face puts before and after a text, and its padding.
AROUND: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "SigLIP2": ((), (1,), 0),
    "SigLIP": ((), (), 1),  # the padding is the end
    "bert-base-uncased": ((101,), (), 0),  # the separator is made padding
    "facebook/xlm-v-base": ((0,), (2,), 1),
    "roberta": ((0,), (2,), 1),
    "google/mt5": ((), (1,), 0),
    "facebook/nllb": ((7,), (2,), 1),
}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 300}
HF_CONFIGS: dict[str, dict[str, Any]] = {
    "roberta": {"model_type": "xlm-roberta", "intermediate_size": 64, "pad_token_id": 1, **SMALL},
    "google/mt5": {
        "model_type": "mt5", "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2,
        "num_heads": 2, "vocab_size": 300, "pad_token_id": 0,
    },
    "facebook/nllb": {
        "model_type": "m2m_100", "d_model": 32, "encoder_layers": 2, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "vocab_size": 300, "pad_token_id": 1, "scale_embedding": True,
    },
}  # fmt: skip


class Standin:
    """Stands in for a tokenizer that would have to be downloaded: one token for each word."""

    def __init__(self, around: tuple[tuple[int, ...], tuple[int, ...], int], length: int) -> None:
        self.start, self.end, self.pad = around
        self.length = length

    def __call__(self, texts: list[str]) -> Tensor:
        rows = []
        for text in texts:
            words = text.replace(".", " .").split()
            content = [110 + sum(map(ord, word)) % 50 for word in words]
            room = self.length - len(self.start) - len(self.end)
            row = [*self.start, *content[:room], *self.end]
            rows.append(row + [self.pad] * (self.length - len(row)))
        return torch.tensor(rows)


@cache
def clips_tokenizer(length: int) -> Any:
    return open_clip.SimpleTokenizer(context_length=length)


def first(table: dict[str, Any], name: str) -> Any:
    return next(value for part, value in table.items() if part in name)


def cut(name: str, folder: Path, half: bool = False) -> tuple[Any, Callable[[list[str]], Tensor]]:
    """A model of which only the text tower's kind is left, and a tokenizer for it."""
    config = open_clip.get_model_config(name)
    text = config["text_cfg"]
    config.update(embed_dim=24, vision_cfg=VISION)
    hugging_face = text.get("hf_tokenizer_name")
    length = text.get("context_length", 77)
    tokenizer = clips_tokenizer(length)
    if hugging_face:
        tokenizer = Standin(first(AROUND, hugging_face), length)
        text["vocab_size"] = 300
    if text.get("hf_model_name"):
        own = first(HF_CONFIGS, text["hf_model_name"])
        (folder / "config.json").write_text(json.dumps(own))
        text["hf_model_name"] = str(folder)
    else:
        text.update(width=32, heads=2, layers=2)
        if text.get("proj_type") == "none":
            config["embed_dim"] = 32
    if "multimodal_cfg" in config:
        config["multimodal_cfg"].update(layers=1, width=32, heads=2, vocab_size=300)
        config["multimodal_cfg"].update(attn_pooler_heads=2, dim_head=16)
    path = folder / f"Cut-{name}.json"
    path.write_text(json.dumps(config))
    open_clip.add_model_config(path)
    torch.manual_seed(0)
    model = build(path.stem, half).eval().requires_grad_(False)
    for parameter in model.parameters():  # so that attention and context matter
        if parameter.dim() > 1:
            parameter.normal_(std=0.2)
    return model, tokenizer


def by_the_library(model: Any, layout: Any, context: Tensor, length: int) -> Tensor:
    """Features by the model's own code: learned vectors are rows of unused words in its table."""
    library, embedding = Library(model), TextTower(model).embedding
    (key,) = [n for n, p in library.named_parameters() if p is embedding.weight][:1]
    unused = torch.arange(200, 200 + len(context))
    rows = context / getattr(embedding, "embed_scale", 1.0)
    table = embedding.weight.index_copy(0, unused, rows)
    tokens = torch.full((layout.n_classes, length), layout.pad)
    for c, slots in enumerate(layout.slots):
        tokens[c, : len(slots)] = torch.tensor([s if s >= 0 else 199 - s for s in slots])
    return torch.func.functional_call(library, {key: table}, (tokens,))


def gradient(features: Tensor, context: Tensor) -> Tensor:
    mixture = torch.randn(features.shape, generator=torch.Generator().manual_seed(5))
    (found,) = torch.autograd.grad((F.normalize(features, dim=-1) * mixture).sum(), context)
    return found


def needs_transformers(name: str) -> bool:
    return "hf_model_name" in open_clip.get_model_config(name)["text_cfg"]


@pytest.mark.parametrize("name", MODELS)
def test_every_models_text_is_encoded_as_the_model_itself_does(name, tmp_path):
    if needs_transformers(name):
        pytest.importorskip("transformers")
    model, tokenizer = cut(name, tmp_path)
    length = tokenizer([""]).shape[1]
    encoder = TextEncoder(model)
    assert planned_way(open_clip.get_model_config(name)) == (encoder.kind, encoder.tower.reason)
    with torch.no_grad():
        found = F.normalize(encoder(text_layout(TEXTS, tokenizer)), dim=-1)
        expected = F.normalize(model.encode_text(tokenizer(TEXTS)), dim=-1)
    assert (found - expected).abs().max() < 1e-5
    assert torch.pdist(found).min() > 1e-3
    layout = context_layout(NAMES, tokenizer, VECTORS)
    context = torch.randn(VECTORS, encoder.width, requires_grad=True)
    ours, theirs = encoder(layout, context), by_the_library(model, layout, context, length)
    difference = F.normalize(ours, dim=-1) - F.normalize(theirs, dim=-1)
    assert difference.abs().max() < 1e-5
    mine, other = gradient(ours, context), gradient(theirs, context)
    assert other.norm() > 0
    assert (mine - other).norm() / other.norm() < 1e-4


KINDS = ("ViT-B-16", "ViT-L-14-CLIPA", "coca_ViT-B-32", "roberta-ViT-B-32", "mt5-base-ViT-B-32")


@pytest.mark.parametrize("name", [*KINDS, "nllb-clip-base", "EVA02-B-16", "ViT-B-16-SigLIP"])
def test_every_kind_of_text_tower_works_in_half_precision(name, tmp_path):
    if needs_transformers(name):
        pytest.importorskip("transformers")
    model, tokenizer = cut(name, tmp_path, half=True)
    assert (TextTower(model).dtype, model.logit_scale.dtype) == (torch.float16, torch.float32)
    encoder = TextEncoder(model)
    check_text_encoder(LoadedCLIP(model, tokenizer, name, "", "", (16, 16)), encoder)
    context = torch.randn(VECTORS, encoder.width, requires_grad=True)
    found = gradient(encoder(context_layout(NAMES, tokenizer, VECTORS), context).float(), context)
    assert found.isfinite().all()
    assert found.norm() > 0


def test_a_small_budget_cuts_the_full_way_into_chunks_with_the_same_result(tmp_path):
    model, tokenizer = cut("ViT-B-16-SigLIP", tmp_path)
    layout = context_layout(NAMES, tokenizer, VECTORS)
    contexts = torch.randn(3, VECTORS, 32, requires_grad=True)
    whole = TextEncoder(model)(layout, contexts)
    sizes: list[int] = []
    handle = model.text.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    parts = TextEncoder(model, budget=20 * 2 * 32 * 4 * 64 * 5)(layout, contexts)
    assert sizes == [1] * 12
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(gradient(parts, contexts), gradient(whole, contexts))
    assert sizes == [1] * 20  # four of them were kept
    handle.remove()


@pytest.mark.parametrize("around", AROUND)
def test_what_begins_ends_and_pads_a_text_is_found_out(around):
    words = words_by(Standin(AROUND[around], 16))
    assert (words.start, words.end, words.pad) == AROUND[around]
    assert words(["cat dog"]) == [tuple(110 + sum(map(ord, w)) % 50 for w in ("cat", "dog"))]
    with pytest.raises(UserError, match="too long for 16 tokens"):
        words(["cat " * 16])
    with pytest.raises(UserError, match="too long"):
        context_layout(["cat"], words.tokenizer, 15)


def test_a_tower_without_a_table_of_tokens_is_refused_with_the_reason():
    with pytest.raises(UserError, match="Linear has no text transformer with a table of tokens"):
        TextEncoder(nn.Linear(2, 2))


def test_the_page_counts_the_models_of_each_way():
    ways = [planned_way(open_clip.get_model_config(name)) for name in MODELS]
    page = (ROOT / "docs/backbones.md").read_text().splitlines()
    for reason, count in Counter(
        reason or "feature at the end token" for _, reason in ways
    ).items():
        (line,) = [line for line in page if line.startswith("|") and reason in line]
        assert line.endswith(f"| {count} |")


def test_the_command_lists_names_ways_and_tags(capsys):
    assert command("models")(["siglip2-256", "ViT-B/16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("ViT-B/16 ")]
    assert "shared" in line
    assert "openai" in line
    (line,) = [line for line in lines if line.startswith("ViT-B-16-SigLIP2-256 ")]
    assert "full: its tokens see later ones" in line
    assert "transformers" in line
    assert command("models")([]) == 0
    assert capsys.readouterr().out.count("\n") >= len(MODELS) >= 130
