"""ImageNet and its shifted test sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from coop_cmp.datasets.imagenet import classname_problems
from coop_cmp.errors import UserError
from tests.datasets.trees import build, entries, write_images, write_text

NAMES = {
    "n01440764": "tench",
    "n01443537": "goldfish",
    "n01484850": "great white shark",
    "n02007558": "flamingo",
}


def imagenet(root: Path) -> Path:
    folder = root / "imagenet"
    write_text(folder / "classnames.txt", *(f"{i} {name}" for i, name in NAMES.items()))
    write_images(
        folder / "images",
        [f"train/{i}/{i}_{k}.JPEG" for i in NAMES for k in (10, 9, 2, 1)]
        + [f"val/{i}/ILSVRC2012_val_{k}.JPEG" for i in NAMES for k in (3, 4)],
    )
    return folder


def shifted(root: Path, folder: str, images: str, ids: list[str]) -> Path:
    write_text(root / folder / "classnames.txt", *(f"{i} {name}" for i, name in NAMES.items()))
    write_images(root / folder / images, (f"{i}/{k}.jpg" for i in ids for k in range(2)))
    return root / folder / images


def test_imagenet_tests_and_validates_on_its_validation_images(tmp_path):
    folder = imagenet(tmp_path)
    dataset = build("ImageNet", tmp_path)
    assert dataset.classnames == list(NAMES.values())
    assert [len(x) for x in (dataset.train_x, dataset.val, dataset.test)] == [16, 8, 8]
    assert entries(dataset.val, folder) == entries(dataset.test, folder)
    assert entries(dataset.train_x, folder)[:2] == [
        ("images/train/n01440764/n01440764_1.JPEG", 0, "tench"),
        ("images/train/n01440764/n01440764_10.JPEG", 0, "tench"),
    ]


def test_imagenet_samples_only_its_training_images(tmp_path):
    folder = imagenet(tmp_path)
    dataset = build("ImageNet", tmp_path, NUM_SHOTS=1, SUBSAMPLE_CLASSES="new")
    assert dataset.classnames == ["great white shark", "flamingo"]
    assert [len(x) for x in (dataset.train_x, dataset.val, dataset.test)] == [2, 4, 4]
    record = (folder / "split_fewshot" / "shot_1-seed_1.json").read_text()
    assert record.count("train/") == 4
    assert "val" not in record


def test_imagenet_with_different_train_and_val_classes_is_refused(tmp_path):
    folder = imagenet(tmp_path)
    (folder / "images" / "val" / "n09999999").mkdir()
    with pytest.raises(UserError, match="1 are in one only, such as n09999999"):
        build("ImageNet", tmp_path)


def test_a_folder_without_class_name_is_refused(tmp_path):
    shifted(tmp_path, "imagenet-sketch", "images", ["n01440764", "n77777777"])
    with pytest.raises(
        UserError, match=r"1 of 2 class folders .* not in classnames.txt.*n77777777"
    ):
        build("ImageNetSketch", tmp_path)


@pytest.mark.parametrize(
    ("name", "folder", "images"),
    [
        ("ImageNetA", "imagenet-adversarial", "imagenet-a"),
        ("ImageNetR", "imagenet-rendition", "imagenet-r"),
    ],
)
def test_a_and_r_have_the_classes_of_their_folders_and_map_into_imagenet(
    tmp_path, name, folder, images
):
    image_dir = shifted(tmp_path, folder, images, ["n02007558", "n01443537"])
    (image_dir / "README.txt").write_text("not a class")
    dataset = build(name, tmp_path, NUM_SHOTS=16)
    assert dataset.classnames == ["goldfish", "flamingo"]
    assert dataset.imagenet_indices == [1, 3]
    assert [len(dataset.train_x), dataset.val, len(dataset.test)] == [4, None, 4]
    assert "probabilities over the 2 classes of this set only" in dataset.notes


def test_v2_orders_its_folders_by_number(tmp_path):
    folder = tmp_path / "imagenetv2"
    ids = [f"n{i:08d}" for i in range(12)]
    write_text(folder / "classnames.txt", *(f"{i} class {n}" for n, i in enumerate(ids)))
    image_dir = folder / "imagenetv2-matched-frequency-format-val"
    write_images(image_dir, (f"{n}/x.jpeg" for n in range(12)))
    dataset = build("ImageNetV2", tmp_path)
    assert dataset.classnames == [f"class {n}" for n in range(12)]
    assert [Path(image.impath).parent.name for image in dataset.test] == [str(n) for n in range(12)]
    (image_dir / "11").rename(image_dir / "12")
    with pytest.raises(UserError, match=r"must have the folders 0 to 11.*'11', '12'"):
        build("ImageNetV2", tmp_path)


def test_v2_refuses_class_names_in_another_order(tmp_path):
    folder = tmp_path / "imagenetv2"
    write_text(folder / "classnames.txt", "n2 goldfish", "n1 tench")
    with pytest.raises(UserError, match="must be sorted by WordNet id"):
        build("ImageNetV2", tmp_path)


def test_base_classes_of_a_shifted_test_set_are_refused(tmp_path):
    shifted(tmp_path, "imagenet-sketch", "images", list(NAMES))
    with pytest.raises(UserError, match=r"SUBSAMPLE_CLASSES must be all for ImageNetSketch"):
        build("ImageNetSketch", tmp_path, SUBSAMPLE_CLASSES="base")


def test_clips_class_names_pass_and_plain_wordnet_names_do_not():
    from open_clip import IMAGENET_CLASSNAMES

    ids = [f"n{i:08d}" for i in range(1000)]
    curated = dict(zip(ids, IMAGENET_CLASSNAMES, strict=True))
    assert classname_problems(curated) == []
    wordnet = curated | {ids[134]: "crane", ids[517]: "crane"}
    assert classname_problems(wordnet) == [
        "classnames.txt repeats ['crane', 'missile', 'sunglasses'], not missile and sunglasses"
    ]
    assert len(classname_problems(dict(reversed(curated.items())))) == 2
    assert classname_problems(NAMES) == [
        "classnames.txt has 4 classes, not 1000",
        "classnames.txt repeats [], not missile and sunglasses",
    ]
