"""A user's own images, and images as the loaders see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dassl.data import DataManager
from dassl.data.datasets import DATASET_REGISTRY
from dassl.utils import read_image
from PIL import Image

from coop_cmp.clip.prompts import template_of
from coop_cmp.config.resolve import resolve
from coop_cmp.errors import UserError
from tests.conftest import ROOT
from tests.datasets.trees import build, config, entries, write_images, write_split

own_engine = pytest.mark.skipif(
    read_image.__module__ != "dassl.utils.images", reason="upstream Dassl opens images its own way"
)
CONFIGS = ROOT / "configs" / "datasets"


def parts(root: Path, *names: str) -> None:
    write_images(
        root, (f"{part}/{c}/{i}.png" for part in names for c in ("tabby", "a") for i in (0, 1))
    )


def test_train_val_and_test_folders_are_read(tmp_path):
    parts(tmp_path, "train", "val", "test")
    dataset = build("ImageFolder", tmp_path)
    assert dataset.classnames == ["a", "tabby"]
    assert entries(dataset.test, tmp_path) == [
        ("test/a/0.png", 0, "a"),
        ("test/a/1.png", 0, "a"),
        ("test/tabby/0.png", 1, "tabby"),
        ("test/tabby/1.png", 1, "tabby"),
    ]
    assert len(dataset.val) == 4


def test_the_validation_folder_may_be_missing(tmp_path):
    parts(tmp_path, "train", "test")
    assert build("ImageFolder", tmp_path, NUM_SHOTS=1).val is None


def test_classes_are_named_in_the_yaml_file(tmp_path):
    parts(tmp_path, "train", "test")
    yaml = tmp_path / "cats.yaml"
    yaml.write_text(
        'DATASET:\n  NAME: "ImageFolder"\n  TEMPLATE: "a drawing of {}."\n'
        '  CLASSNAMES: ["Abyssinian", "tabby cat"]\n'
    )
    cfg = resolve(ROOT, {"--dataset-config-file": str(yaml)}, {"DATASET.ROOT": str(tmp_path)}, {})
    dataset = DATASET_REGISTRY.get(cfg.DATASET.NAME)(cfg)
    assert dataset.classnames == ["Abyssinian", "tabby cat"]
    assert template_of(cfg) == "a drawing of {}."


def test_the_wrong_number_of_class_names_is_refused(tmp_path):
    parts(tmp_path, "train", "test")
    with pytest.raises(UserError, match=r"CLASSNAMES must name the 2 classes .* got 1 names"):
        build("ImageFolder", tmp_path, CLASSNAMES=("tabby",))


def test_a_split_file_decides_where_there_is_one(tmp_path):
    write_images(tmp_path, (f"{c}/{i}.png" for c in ("cat", "dog") for i in range(2)))
    train = [("cat/0.png", 0, "cat"), ("dog/0.png", 1, "dog")]
    test = [("cat/1.png", 0, "cat")]
    write_split(tmp_path / "split.json", train, [], test)
    dataset = build("ImageFolder", tmp_path)
    assert entries(dataset.train_x, tmp_path) == train
    assert entries(dataset.test, tmp_path) == test


def test_a_split_is_made_only_when_asked_for_and_then_kept(tmp_path):
    write_images(tmp_path, (f"{c}/{i}.png" for c in ("cat", "dog") for i in range(10)))
    with pytest.raises(UserError, match=r"needs folders train/ and test/.*ALLOW_NEW_SPLIT True"):
        build("ImageFolder", tmp_path)
    made = build("ImageFolder", tmp_path, ALLOW_NEW_SPLIT=True)
    kept = build("ImageFolder", tmp_path)
    assert entries(kept.train_x, tmp_path) == entries(made.train_x, tmp_path)
    assert [len(x) for x in json.loads((tmp_path / "split.json").read_text()).values()] == [
        10,
        4,
        6,
    ]


def test_a_test_class_that_is_not_trained_is_refused(tmp_path):
    parts(tmp_path, "train", "test")
    (tmp_path / "test" / "lynx").mkdir()
    with pytest.raises(UserError, match="no class 'lynx' in train/"):
        build("ImageFolder", tmp_path)


def test_the_yaml_files_name_registered_data_sets():
    stems = {path.stem for path in CONFIGS.glob("*.yaml")}
    assert {"caltech101", "dtd", "imagenet_a", "imagenetv2", "ucf101", "cifar10", "folder"} <= stems
    for path in CONFIGS.glob("*.yaml"):
        cfg = resolve(ROOT, {"--dataset-config-file": str(path)}, {}, {})
        assert cfg.DATASET.NAME in DATASET_REGISTRY.registered_names(), path


def test_own_classes_that_read_the_same_in_a_prompt_are_refused(tmp_path):
    write_images(tmp_path, (f"{p}/{c}/0.png" for p in ("train", "test") for c in ("a_b", "a b")))
    with pytest.raises(UserError, match=r"'a b' and 'a_b' read the same.*DATASET\.CLASSNAMES"):
        build("ImageFolder", tmp_path)
    assert build("ImageFolder", tmp_path, CLASSNAMES=("first", "second")).notes == []


@own_engine
def test_photographs_are_turned_upright_where_the_settings_say_so(tmp_path):
    parts(tmp_path, "train", "test")
    half = Image.new("RGB", (8, 8), "black")
    half.paste("white", (0, 0, 4, 8))  # the left half; orientation 6 turns it to the top
    exif = Image.Exif()
    exif[0x0112] = 6
    half.save(tmp_path / "test/a/0.png", exif=exif)
    cfg = config("ImageFolder", tmp_path).clone()
    cfg.defrost()
    cfg.INPUT.SIZE, cfg.INPUT.TRANSFORMS = (8, 8), ("random_flip",)
    cfg.DATALOADER.NUM_WORKERS, cfg.USE_CUDA, cfg.INPUT.UPRIGHT = 0, False, True
    turned = next(iter(DataManager(cfg).test_loader))["img"][0].mean((0, 2))
    assert turned[:3].min() > 0.9
    assert turned[5:].max() < 0.1
