"""Image transforms by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dassl.data.transforms.transforms import (
    AVAI_CHOICES,
    Cutout,
    GaussianNoise,
    InstanceNormalization,
    Random2DTranslation,
    build_transform,
)
from dassl.utils import set_random_seed
from PIL import Image
from torchvision import transforms as T


@pytest.fixture
def picture() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def names(transform: T.Compose) -> list[str]:
    return [type(step).__name__ for step in transform.transforms]


@pytest.mark.parametrize("choice", AVAI_CHOICES)
@pytest.mark.parametrize("is_train", [True, False])
def test_every_name_gives_a_tensor_of_the_right_size(make_cfg, picture, choice, is_train):
    transform = build_transform(make_cfg("INPUT.SIZE", (16, 12)), is_train, [choice])
    for seed in range(5):
        set_random_seed(seed)
        first = transform(picture)
        assert first.shape == (3, 16, 12)
        assert torch.isfinite(first).all()
        set_random_seed(seed)
        assert torch.equal(first, transform(picture))


def test_the_order_of_the_training_steps_is_the_published_one(make_cfg):
    found = names(build_transform(make_cfg(), choices=AVAI_CHOICES))
    assert found == [
        "Random2DTranslation",
        "RandomCrop",
        "RandomResizedCrop",
        "RandomHorizontalFlip",
        *["AutoAugment"] * 3,
        "RandAugment",
        "RandAugmentFixMatch",
        "RandAugment2",
        "ColorJitter",
        "RandomGrayscale",
        "RandomApply",
        "ToTensor",
        "Cutout",
        "Normalize",
        "GaussianNoise",
        "InstanceNormalization",
    ]


def test_coop_preprocessing_equals_torchvision_step_by_step(make_cfg, picture):
    cfg = make_cfg(
        *("INPUT.INTERPOLATION", "bicubic", "INPUT.SIZE", (16, 16)),
        *("INPUT.TRANSFORMS", ("random_resized_crop", "random_flip", "normalize")),
    )
    normalize = T.Normalize(cfg.INPUT.PIXEL_MEAN, cfg.INPUT.PIXEL_STD)
    bicubic = T.InterpolationMode.BICUBIC
    train = T.Compose(
        [
            T.RandomResizedCrop((16, 16), scale=(0.08, 1.0), interpolation=bicubic),
            T.RandomHorizontalFlip(),
            T.ToTensor(),
            normalize,
        ]
    )
    test = T.Compose([T.Resize(16, bicubic), T.CenterCrop((16, 16)), T.ToTensor(), normalize])
    for is_train, expected in ((True, train), (False, test)):
        set_random_seed(1)
        ours = build_transform(cfg, is_train)(picture)
        set_random_seed(1)
        assert torch.equal(ours, expected(picture))


def test_an_unknown_name_is_refused_and_no_transform_is_none(make_cfg):
    with pytest.raises(AssertionError, match=r"INPUT.TRANSFORMS: expected .* got 'rotate'"):
        build_transform(make_cfg(), choices=["rotate"])
    assert build_transform(make_cfg("INPUT.NO_TRANSFORM", True)) is None


@pytest.mark.parametrize(
    ("choice", "means"),
    [
        ("randaugment", [106.28, 143.718, 0.0, 101.227]),
        ("randaugment_fixmatch", [64.105, 93.593, 45.615, 103.907]),
        ("randaugment2", [81.493, 67.37, 91.201, 109.335]),
        ("random_translation", [109.111, 118.79, 109.111, 110.409]),
        ("cutout", [99.262, 97.076, 98.979, 99.371]),
    ],
)
def test_a_seed_gives_upstreams_images(make_cfg, monkeypatch, choice, means):
    """The mean pixels were computed with upstream Dassl 0.6.3."""
    monkeypatch.setattr(np, "int", int, raising=False)  # which upstream uses
    y, x = np.mgrid[:48, :64]
    picture = Image.fromarray(np.stack([3 * x, 5 * y, x * y % 256], -1).astype(np.uint8))
    cfg = make_cfg("INPUT.SIZE", (48, 64))
    transform = build_transform(cfg, choices=[choice])
    for seed, mean in enumerate(means):
        set_random_seed(seed)
        assert 255 * transform(picture).mean().item() == pytest.approx(mean, abs=0.01)


def test_cutout_blanks_squares_of_a_copy():
    image = torch.ones(3, 32, 32)
    for seed in range(20):
        set_random_seed(seed)
        result = Cutout(1, 8)(image)
        blank = int((result[0] == 0).sum())
        assert 16 <= blank <= 64  # at a corner a quarter of the square is inside
        assert torch.equal(result[0], result[2])
    assert image.all()


def test_instance_norm_noise_and_translation_do_what_they_say(picture):
    tensor = T.ToTensor()(picture)
    normed = InstanceNormalization()(tensor)
    assert torch.allclose(normed.mean((1, 2)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(normed.std((1, 2)), torch.ones(3), atol=1e-5)
    torch.manual_seed(0)
    noise = GaussianNoise(0.5, 0.1, p=1)(torch.zeros(3, 64, 64))
    assert noise.mean().item() == pytest.approx(0.5, abs=0.01)
    assert noise.std().item() == pytest.approx(0.1, abs=0.01)
    assert GaussianNoise(p=0)(tensor) is tensor
    plain = Random2DTranslation(16, 16, p=0)(picture)
    moved = Random2DTranslation(16, 16, p=1)(picture)
    assert plain.size == moved.size == (16, 16)
    assert np.array_equal(np.asarray(plain), np.asarray(T.Resize((16, 16))(picture)))
    assert not np.array_equal(np.asarray(plain), np.asarray(moved))


def test_settings_of_transforms_that_are_not_chosen_are_not_read(make_cfg):
    cfg = make_cfg()
    for key in [*cfg.INPUT]:
        if key.startswith(("RANDAUGMENT", "COLORJITTER", "CUTOUT", "GN_", "GB_", "RGS_", "RRCROP")):
            del cfg.INPUT[key]
    assert names(build_transform(cfg, choices=["normalize"])) == ["Resize", "ToTensor", "Normalize"]
