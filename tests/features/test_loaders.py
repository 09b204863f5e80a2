"""Stored features: the same results as without, and nothing stale."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from dassl.data.transforms.transforms import Cutout
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms as T

from coop_cmp.features.encode import ImageEncoder, describe_transform, tower_digest
from coop_cmp.features.loaders import feature_loader
from coop_cmp.features.views import SeededViews
from tests.small_clip import small_clip


def stored(tmp_path: Path) -> int:
    return len(list((tmp_path / "coop_cmp" / "features").rglob("*.safetensors")))


# Testing on validation data in every epoch shows that the store leaves the random numbers alone.
VALIDATED = ("TEST.FINAL_MODEL", "best_val")


@pytest.mark.parametrize("trainer", ["CoOp", "ZeroshotCLIP"])
def test_results_are_bit_identical_without_a_store_and_with_an_empty_and_a_filled_one(
    trainer, run, tmp_path
):
    without, _ = run("without", "--no-feature-store", *VALIDATED, trainer=trainer)
    assert stored(tmp_path) == 0
    first, said = run("first", *VALIDATED, trainer=trainer)
    assert "kept features of 12 images" in said
    second, said = run("second", *VALIDATED, trainer=trainer)
    assert "read features of 12 images" in said
    assert (first == without).all()
    assert (second == without).all()


def test_an_image_prompt_method_reads_the_same_features(run, tmp_path):
    """CoCoOp encodes prompts for every image; the image's own features are still frozen."""
    options = ("OPTIM.MAX_EPOCH", "1")
    without, _ = run("without", "--no-feature-store", *options, trainer="CoCoOp")
    run("fill", *options, trainer="CoOp")
    filled, said = run("filled", *options, trainer="CoCoOp")
    assert "read features" in said
    assert (filled == without).all()


@pytest.mark.parametrize(
    "options",
    [
        ("INPUT.PIXEL_MEAN", "[0.5, 0.5, 0.5]"),
        ("INPUT.INTERPOLATION", "bilinear"),
        ("DATALOADER.TEST.BATCH_SIZE", "4"),
        ("TRAINER.COOP.PREC", "amp"),
    ],
    ids=lambda options: options[0],
)
def test_what_changes_features_changes_the_key(options, run, tmp_path):
    run("plain", trainer="ZeroshotCLIP")
    run("changed", *options, trainer="ZeroshotCLIP")
    assert stored(tmp_path) == 2


def test_other_weights_change_the_key_and_the_text_side_does_not(tmp_path):
    model, other = small_clip("vit"), small_clip("rn50")
    assert tower_digest(model.visual) != tower_digest(other.visual)
    changed = copy.deepcopy(model.visual)
    assert tower_digest(changed) == tower_digest(model.visual)
    with torch.no_grad():
        changed.conv1.weight[0, 0, 0, 0] += 1
    assert tower_digest(changed) != tower_digest(model.visual)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.GELU()), nn.Sequential(nn.Linear(2, 2), nn.ReLU())),
        (nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 4)),  # whose repr is the same
    ],
    ids=["activation", "heads"],
)
def test_the_same_weights_in_another_architecture_change_the_key(one, other):
    other.load_state_dict(one.state_dict())
    assert tower_digest(one) != tower_digest(other)
    assert tower_digest(one.eval()) == tower_digest(one.train())


def test_a_changed_image_file_changes_the_key(run, pictures, tmp_path):
    before, _ = run("before", trainer="ZeroshotCLIP")
    Image.new("RGB", (40, 48)).save(pictures / "test" / "cat" / "2.png")
    after, _ = run("after", trainer="ZeroshotCLIP")
    assert stored(tmp_path) == 2
    assert (before != after).any(axis=1).nonzero()[0].tolist() == [2]


def test_a_method_that_changes_image_features_does_not_use_the_store_and_says_so(run, tmp_path):
    options = ("TRAINER.MAPLE.PROMPT_DEPTH", "2", "INPUT.SHARED_VIEWS", "True")
    _, said = run("maple", *options, trainer="MaPLe")
    assert "Feature store: not for MaPLe" in said
    assert "Shared views: not for MaPLe, which changes image features" in said
    assert stored(tmp_path) == 0


class RandomImages:
    """Five images, each a number that the three random generators decide."""

    transform = None
    data_source = tuple(SimpleNamespace(impath=f"{i}.png", label=i % 2, domain=0) for i in range(5))

    def __len__(self) -> int:
        return len(self.data_source)

    def __getitem__(self, i: int) -> dict[str, Any]:
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return {"img": torch.tensor([float(i), *drawn])}


def loader_with(workers: int) -> DataLoader:
    return DataLoader(RandomImages(), num_workers=workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_are_encoded_in_the_order_asked_for(workers):
    views = SeededViews(RandomImages(), 3, seed=1)
    encoder = ImageEncoder(views, 4, loader_with(workers), nn.Identity())
    for rows in (range(len(views)), range(2, 9), [14, 3]):  # workers stay from one to the next
        assert torch.equal(encoder(rows), torch.stack([views[i]["img"] for i in rows]))


def test_encoding_leaves_the_random_generators_as_they_were():
    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = draw()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    ImageEncoder(SeededViews(RandomImages(), 3, 1), 4, loader_with(0), nn.Identity())()
    assert draw() == expected


def test_served_batches_are_the_loaders_batches():
    features = torch.arange(5.0)[:, None]
    for options in ({"batch_size": 2}, {"batch_size": 2, "shuffle": True, "drop_last": True}):
        loader = DataLoader(RandomImages(), **options)
        served = feature_loader(loader, features.__getitem__)
        assert len(served) == len(loader)
        torch.manual_seed(4)
        expected = [batch["img"][:, 0].tolist() for batch in loader]
        torch.manual_seed(4)
        batches = list(served)
        assert [batch["img"][:, 0].tolist() for batch in batches] == expected
        assert [batch["index"].tolist() for batch in batches] == expected
        for batch in batches:
            assert batch["label"].tolist() == [i % 2 for i in batch["index"].tolist()]
            assert batch["impath"] == [f"{i}.png" for i in batch["index"].tolist()]


def test_serving_uses_as_many_random_numbers_as_loading():
    """Otherwise the training after a validation would depend on the store."""
    loader = DataLoader(RandomImages(), batch_size=2, shuffle=True)
    loader.dataset.__class__ = type("Fixed", (RandomImages,), {"__getitem__": lambda s, i: i})
    drawn = []
    for source in (loader, feature_loader(loader, torch.zeros(5, 1).__getitem__)):
        torch.manual_seed(4)
        list(source)
        drawn.append(torch.rand(()).item())
    assert drawn[0] == drawn[1]


def test_a_transform_is_described_by_its_settings_and_not_by_its_address():
    one, same = (T.Compose([T.Resize(8), Cutout(1, 4), T.ToTensor()]) for _ in range(2))
    assert describe_transform(one) == describe_transform(same)
    assert " at 0x" not in describe_transform(one)
    nested = [T.RandomApply([Cutout(1, n)], p=p) for n, p in ((4, 0.5), (5, 0.5), (4, 0.6))]
    others = [T.Compose([T.Resize(9), Cutout(1, 4), T.ToTensor()]), Cutout(2, 4), *nested]
    assert len({describe_transform(t) for t in (one, *others)}) == len(others) + 1
