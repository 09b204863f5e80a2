"""AugMix: what its operations may do, and how it mixes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from coop_cmp.features import augmix
from coop_cmp.features.augmix import OPERATIONS, AugMix


def picture(size: int = 224) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_keeps_the_kind_of_image(operation):
    changed = operation(picture(20))
    assert (changed.size, changed.mode) == ((20, 20), "RGB")


@pytest.mark.parametrize(("share", "pixels"), [(0.1, 0), (0.5, 3), (1.0, 7)])
def test_a_translation_is_at_most_a_thirtieth_of_the_side(share, pixels, monkeypatch):
    monkeypatch.setattr(augmix, "_strength", lambda most: share * most)
    monkeypatch.setattr(augmix, "_signed", lambda value: value)
    before = np.asarray(picture())
    after = np.asarray(augmix._translate_x(picture()))
    assert (after[:, : 224 - pixels] == before[:, pixels:]).all()
    after = np.asarray(augmix._translate_y(picture()))
    assert (after[: 224 - pixels] == before[pixels:]).all()


def test_strengths_reach_from_a_tenth_to_all_on_both_sides():
    torch.manual_seed(0)
    drawn = torch.tensor([augmix._signed(augmix._strength(10.0)) for _ in range(2000)])
    assert drawn.abs().min() >= 1
    assert drawn.abs().max() <= 10
    assert drawn.abs().mean().item() == pytest.approx(5.5, abs=0.2)
    assert (drawn > 0).float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_solarizing_touches_only_the_brightest_and_posterizing_keeps_four_bits():
    ramp = np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 256, 3)
    for _ in range(50):
        solarized = np.asarray(augmix._solarize(Image.fromarray(ramp)))
        assert (solarized[0, :231] == ramp[0, :231]).all()
    posterized = np.asarray(augmix._posterize(Image.fromarray(ramp)))
    assert (posterized == ramp & 0xF0).all()


def test_all_weights_sum_to_one(monkeypatch):
    """With operations that change nothing, any mixture is the image itself."""
    monkeypatch.setattr(augmix, "OPERATIONS", (lambda image: image,))
    torch.manual_seed(0)
    expected = torch.tensor(np.asarray(picture(8))).permute(2, 0, 1) / 255
    for _ in range(20):
        torch.testing.assert_close(AugMix()(picture(8)), expected, atol=1e-6, rtol=0)


def test_the_shares_of_image_and_chains_are_uniform_and_dirichlet(monkeypatch):
    """A black image, and operations that make one channel white, another one for each chain."""
    calls = iter(range(10**6))

    def paint(image: Image.Image) -> Image.Image:
        blank = np.zeros((1, 1, 3), dtype=np.uint8)
        blank[..., next(calls) % 3] = 255
        return Image.fromarray(blank)

    monkeypatch.setattr(augmix, "OPERATIONS", (paint,))
    monkeypatch.setattr(augmix, "DEEPEST", 1)
    torch.manual_seed(0)
    black = Image.new("RGB", (1, 1))
    shares = torch.stack([AugMix()(black).flatten() for _ in range(3000)]).double()  # [n, chain]
    own = 1 - shares.sum(1)
    assert own.mean().item() == pytest.approx(1 / 2, abs=0.02)
    assert own.var().item() == pytest.approx(1 / 12, abs=0.01)
    of_chains = shares / shares.sum(1, keepdim=True)
    assert of_chains.mean(0).tolist() == pytest.approx([1 / 3] * 3, abs=0.02)
    assert of_chains.var(0).tolist() == pytest.approx([1 / 18] * 3, abs=0.01)  # of Dirichlet(1,1,1)


def test_it_repeats_with_the_generator_and_differs_without():
    torch.manual_seed(5)
    first = AugMix()(picture(16))
    second = AugMix()(picture(16))
    torch.manual_seed(5)
    assert torch.equal(AugMix()(picture(16)), first)
    assert not torch.equal(first, second)
