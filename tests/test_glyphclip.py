"""GlyphCLIP: its signs, renderer, captions, pre-training and the weights in the repository."""

from __future__ import annotations

import ast
import json
import random
import sys
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from safetensors.torch import load_file

from coop_cmp.datasets.digits import NAMES, fixed_split, load_pictures
from coop_cmp.datasets.signs import DIGITS, SIGNS, sign_name
from tools.glyphclip import captions, pretrain, render

MODELS = Path(__file__).parents[1] / "configs" / "models"


@pytest.fixture(scope="module")
def bank() -> render.GlyphBank:
    return render.build_bank(held_out=True)


@pytest.fixture(scope="module")
def words() -> pretrain.Vocabulary:
    return pretrain.Vocabulary()


@pytest.fixture(scope="module")
def glyph_clip() -> CLIP:
    """The stored weights in a plain open_clip model; unknown tokens get the mean of the known."""
    model = CLIP(**json.loads((MODELS / "GlyphCLIP.json").read_text()))
    state = load_file(MODELS / "GlyphCLIP.safetensors")
    known = state["token_embedding.weight"].float()
    table = known.mean(0).repeat(49408, 1)
    table[state.pop("token_embedding.rows")] = known
    model.load_state_dict(state | {"token_embedding.weight": table})
    return model.eval()


def test_the_same_seed_draws_the_same_pictures(bank: render.GlyphBank) -> None:
    signs = torch.arange(len(SIGNS))
    first, again = (render.Renderer(bank, 3)(signs) for _ in range(2))
    other = render.Renderer(bank, 4)(signs)
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.flags, again.flags)
    assert not torch.equal(first.images, other.images)


def test_pictures_are_of_the_right_size_and_show_something(bank: render.GlyphBank) -> None:
    images, flags = render.Renderer(bank, 0)(torch.arange(len(SIGNS)).repeat(4))
    assert images.shape == (4 * len(SIGNS), 3, 32, 32)
    assert flags.shape == (4 * len(SIGNS), len(render.ATTRIBUTES))
    assert images.min() >= 0
    assert images.max() <= 1
    assert (images.std((1, 2, 3)) > 0.02).all()
    inverted = flags[:, render.ATTRIBUTES.index("inverted")]
    assert (images[inverted].mean((1, 2, 3)) > 0.4).all()
    assert images[~inverted].mean() < 0.4


def test_every_sign_is_drawn_by_the_training_and_the_held_out_fonts(
    bank: render.GlyphBank,
) -> None:
    assert set(bank.signs.tolist()) == set(range(len(SIGNS)))
    training = {p.stem for p in render.font_files() if render.code_points(p)}
    assert set(render.HELD_OUT_FONTS) < training
    assert len(training) > 15


def test_a_skeleton_is_a_thin_line_within_the_shape() -> None:
    shape = np.zeros((1, 20, 20), dtype=bool)
    shape[0, 3:17, 4:9] = True
    line = render.skeletonise(shape)
    assert (line & ~shape).sum() == 0
    assert 8 <= line.sum() <= 14
    assert line[0, 6:14].sum(1).tolist() == [1] * 8


def test_pre_training_imports_nothing_that_holds_the_real_digits() -> None:
    imported = set()
    for file in Path(render.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    outside = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names)
    inside = {name for name in imported if name.startswith(("coop_cmp", "tools"))}
    outside -= {"coop_cmp", "tools"}
    assert outside == {"matplotlib", "numpy", "open_clip", "PIL", "safetensors", "scipy", "torch"}
    ours = {"tools.glyphclip.captions", "tools.glyphclip.render"}
    assert inside == {"coop_cmp.files", "coop_cmp.datasets.signs"} | ours


def test_captions_name_the_sign_and_what_is_true_of_the_picture() -> None:
    rng, seven = random.Random(0), SIGNS.index("7")
    for attribute, adjectives in captions.ADJECTIVES.items():
        text = captions.caption(seven, [attribute], rng)
        assert any(adjective in text for adjective in adjectives), text
        assert "seven" in text
    plain = {captions.caption(seven, [], rng) for _ in range(2000)}
    assert plain == {frame.format("seven") for frame in captions.FRAMES}
    assert set(captions.ADJECTIVES) == set(render.ATTRIBUTES[1:])


def test_every_sign_has_a_name_of_its_own_in_which_digits_are_words() -> None:
    assert len({sign_name(sign) for sign in SIGNS}) == len(set(SIGNS)) == len(SIGNS) == 184
    assert [sign_name(digit) for digit in DIGITS] == list(NAMES)
    names = {
        "A": "capital a",
        "a": "lowercase a",
        "é": "e acute",
        "α": "alpha",
        "Ж": "cyrillic zhe",
    }
    assert {sign: sign_name(sign) for sign in names} == names


def test_every_caption_is_inside_the_vocabulary(words: pretrain.Vocabulary) -> None:
    rng, tokenizer = random.Random(0), open_clip.get_tokenizer("ViT-B-32")
    choices = [(c, a) for c in range(len(SIGNS)) for a in render.ATTRIBUTES[1:]]
    texts = [captions.caption(c, [a], rng) for c, a in choices]
    tokens = words(texts)
    expected = tokenizer(texts)
    assert torch.equal(words.rows[tokens], expected[:, : tokens.shape[1]])
    assert (expected[:, tokens.shape[1] :] == 0).all()


def test_a_caption_is_positive_for_exactly_the_pictures_it_describes() -> None:
    seven, three = SIGNS.index("7"), SIGNS.index("3")
    signs = torch.tensor([seven, seven, three])
    flags = torch.zeros(3, len(render.ATTRIBUTES), dtype=torch.bool)
    flags[:, 0] = True
    flags[0, render.ATTRIBUTES.index("bold")] = True
    flags[:2, render.ATTRIBUTES.index("noisy")] = True
    flags[1:, render.ATTRIBUTES.index("blurry")] = True
    rng = random.Random(1)
    for _ in range(40):
        texts, positive = pretrain.describe(signs, flags, rng)
        assert len(set(texts)) == len(texts)
        for text, mask in zip(texts, positive.t().tolist(), strict=True):
            bold, blurry = "bold" in text or "thick" in text, "blur" in text
            noisy = "noisy" in text or "grainy" in text
            described = [not blurry, not bold, not bold and not noisy]
            named = ["seven" in text, "seven" in text, "three" in text]
            assert mask == [a and b for a, b in zip(named, described, strict=True)], text


def test_a_batch_has_all_digits_and_several_pictures_of_each_sign() -> None:
    generator = torch.Generator().manual_seed(0)
    signs = pretrain.sample_signs(64, generator).tolist()
    assert len(signs) == 64
    assert set(range(10)) < set(signs)
    assert {signs.count(sign) for sign in signs} == {pretrain.REPEATS}


def test_the_loss_is_the_plain_contrastive_loss_when_nothing_repeats() -> None:
    logits = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    target = torch.arange(5)
    plain = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
    torch.testing.assert_close(pretrain.contrastive_loss(logits, torch.eye(5) > 0), plain)


def test_text_features_are_those_of_open_clip(glyph_clip: CLIP, words: pretrain.Vocabulary) -> None:
    texts = ["a photo of a seven.", "the letter q."]
    tokens = words.tokenizer(texts)
    with torch.no_grad():
        expected = glyph_clip.encode_text(tokens, normalize=True)
        cut = pretrain.encode_text(glyph_clip, tokens[:, :9])
    torch.testing.assert_close(cut, expected, atol=1e-5, rtol=1e-4)


def test_a_short_pre_training_gives_the_same_weights_twice(
    bank: render.GlyphBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrain, "build_bank", lambda held_out=False: bank)
    first, again = (pretrain.train(steps=3, batch=16, peak=1e-3, seed=5) for _ in range(2))
    other = pretrain.train(steps=3, batch=16, peak=1e-3, seed=6)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["text_projection"], other["text_projection"])


def test_the_stored_weights_are_small_and_cover_the_vocabulary(words: pretrain.Vocabulary) -> None:
    path = MODELS / "GlyphCLIP.safetensors"
    assert path.stat().st_size < 4_000_000
    assert torch.equal(load_file(path)["token_embedding.rows"], words.rows)
    assert "step" in path.with_suffix(".log").read_text()


def test_the_stored_weights_read_real_digits_without_having_seen_one(glyph_clip: CLIP) -> None:
    """On the training and validation part; the test part is for the numbers that are reported."""
    pictures, digits = load_pictures()
    split = fixed_split(digits)
    chosen = [int(Path(path).stem) for path, _, _ in split.train + split.val]
    images = torch.from_numpy(np.stack([np.asarray(pictures[i]) for i in chosen]))[:, None] / 255
    labels = torch.tensor([digits[i] for i in chosen])
    tokens = open_clip.get_tokenizer("ViT-B-32")([f"a photo of the digit {n}." for n in NAMES])
    with torch.no_grad():
        text = glyph_clip.encode_text(tokens, normalize=True)
        image = glyph_clip.encode_image(pretrain.normalise(images), normalize=True)
    accuracy = ((image @ text.t()).argmax(1) == labels).float().mean().item()
    assert accuracy > 0.6
