"""Every data set with a split, in its real layout, down to its peculiarities."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from coop_cmp.errors import UserError
from tests.datasets.trees import build, entries, write_images, write_split, write_text

# Registered name, folder below the root, image folder below that, as in the CoOp codebase.
WITH_SPLIT_FILE = [
    ("Caltech101", "caltech-101", "101_ObjectCategories"),
    ("OxfordPets", "oxford_pets", "images"),
    ("StanfordCars", "stanford_cars", ""),
    ("OxfordFlowers", "oxford_flowers", "jpg"),
    ("Food101", "food-101", "images"),
    ("SUN397", "sun397", "SUN397"),
    ("DescribableTextures", "dtd", "images"),
    ("EuroSAT", "eurosat", "2750"),
    ("UCF101", "ucf101", "UCF-101-midframes"),
]


@pytest.mark.parametrize(("name", "folder", "images"), WITH_SPLIT_FILE)
def test_the_published_split_file_decides(tmp_path, name, folder, images):
    train = [("b/1.jpg", 1, "wasp"), ("a/1.jpg", 0, "ant"), ("a/2.jpg", 0, "ant")]
    val, test = [("a/3.jpg", 0, "ant")], [("b/2.jpg", 1, "wasp")]
    write_images(tmp_path / folder / images, (path for path, _, _ in train + val + test))
    write_split(tmp_path / folder / f"split_zhou_{name}.json", train, val, test)
    dataset = build(name, tmp_path)
    parts = [
        entries(p, tmp_path / folder / images) for p in (dataset.train_x, dataset.val, dataset.test)
    ]
    assert parts == [train, val, test]
    assert dataset.classnames == ["ant", "wasp"]
    assert dataset.notes == []


def new_split(name: str, root: Path) -> dict[str, tuple[int, str]]:
    """Make a new split of the data set; returns label and class name of each image."""
    with pytest.raises(UserError, match="no split file"):
        build(name, root)
    dataset = build(name, root, ALLOW_NEW_SPLIT=True)
    again = build(name, root, ALLOW_NEW_SPLIT=True)
    assert "new random split" in dataset.notes[0]
    assert dataset.notes == again.notes
    parts = [dataset.train_x, dataset.val, dataset.test]
    listed = [entry for part in parts for entry in entries(part, Path(dataset.image_dir))]
    assert entries(again.train_x, root) == entries(dataset.train_x, root)
    files = {path.name for path in Path(dataset.dataset_dir).glob("split_*.json")}
    assert files == {f"split_new_{name}.json"}
    assert len({path for path, _, _ in listed}) == len(listed)
    return {path: (label, classname) for path, label, classname in listed}


def class_folders(root: Path, *names: str) -> None:
    write_images(root, (f"{name}/{name}_{i}.jpg" for name in names for i in range(10)))


def test_caltech_drops_two_folders_and_renames_four(tmp_path):
    class_folders(
        tmp_path / "caltech-101" / "101_ObjectCategories",
        *("BACKGROUND_Google", "Faces", "Faces_easy", "Leopards", "Motorbikes"),
        *("accordion", "airplanes", "yin_yang"),
    )
    found = set(new_split("Caltech101", tmp_path).values())
    assert sorted(found) == [
        (0, "face"),
        (1, "leopard"),
        (2, "motorbike"),
        (3, "accordion"),
        (4, "airplane"),
        (5, "yin_yang"),
    ]


def test_eurosat_writes_its_names_out(tmp_path):
    folders = "AnnualCrop Forest HerbaceousVegetation Highway Industrial Pasture PermanentCrop"
    class_folders(
        tmp_path / "eurosat" / "2750", *folders.split(), "Residential", "River", "SeaLake"
    )
    found = dict(new_split("EuroSAT", tmp_path).values())
    assert [found[label] for label in range(10)] == [
        "Annual Crop Land",
        "Forest",
        "Herbaceous Vegetation Land",
        "Highway or Road",
        "Industrial Buildings",
        "Pasture Land",
        "Permanent Crop Land",
        "Residential Buildings",
        "River",
        "Sea or Lake",
    ]


@pytest.mark.parametrize(
    ("name", "folder"), [("Food101", "food-101"), ("DescribableTextures", "dtd")]
)
def test_food_and_textures_keep_their_folder_names(tmp_path, name, folder):
    class_folders(tmp_path / folder / "images", "apple_pie", "baby_back_ribs")
    found = new_split(name, tmp_path)
    assert set(found.values()) == {(0, "apple_pie"), (1, "baby_back_ribs")}
    split = json.loads((tmp_path / folder / f"split_new_{name}.json").read_text())
    assert {part: len(items) for part, items in split.items()} == {"train": 10, "val": 4, "test": 6}


def test_pets_take_the_breed_from_the_file_name_in_lower_case(tmp_path):
    folder = tmp_path / "oxford_pets"
    breeds = {"Abyssinian": 1, "american_bulldog": 2}
    names = [f"{breed}_{i}" for breed in breeds for i in range(6)]
    write_images(folder / "images", (f"{name}.jpg" for name in names))
    lines = [f"{name} {breeds[name.rpartition('_')[0]]} 1 1" for name in names]
    write_text(folder / "annotations" / "trainval.txt", *lines[:5], *lines[6:11])
    write_text(folder / "annotations" / "test.txt", lines[5], lines[11])
    found = new_split("OxfordPets", tmp_path)
    assert found["Abyssinian_5.jpg"] == (0, "abyssinian")
    assert found["american_bulldog_2.jpg"] == (1, "american_bulldog")
    split = json.loads((folder / "split_new_OxfordPets.json").read_text())
    assert [len(split[part]) for part in ("train", "val", "test")] == [8, 2, 2]


def test_cars_move_the_year_to_the_front(tmp_path):
    folder = tmp_path / "stanford_cars"
    names = np.array(["AM General Hummer SUV 2000", "Acura RL Sedan 2012"], dtype=object)
    (folder / "devkit").mkdir(parents=True)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names})
    for path, images, count in (
        ("devkit/cars_train_annos.mat", "cars_train", 10),
        ("cars_test_annos_withlabels.mat", "cars_test", 2),
    ):
        files = [f"{i:05d}.jpg" for i in range(count)]
        labels = [1 + i % 2 for i in range(count)]
        rows = np.array(
            list(zip(files, labels, strict=True)), dtype=[("fname", "O"), ("class", "O")]
        )
        savemat(folder / path, {"annotations": rows})
        write_images(folder / images, files)
    found = new_split("StanfordCars", tmp_path)
    assert found["cars_train/00000.jpg"] == (0, "2000 AM General Hummer SUV")
    assert found["cars_test/00001.jpg"] == (1, "2012 Acura RL Sedan")
    assert len(found) == 12


def test_flowers_take_labels_from_matlab_and_names_from_json(tmp_path):
    folder = tmp_path / "oxford_flowers"
    labels = [2] * 10 + [1] * 10
    write_images(folder / "jpg", (f"image_{i:05d}.jpg" for i in range(1, 21)))
    savemat(folder / "imagelabels.mat", {"labels": np.array([labels], np.uint8)})
    write_text(folder / "cat_to_name.json", '{"1": "pink primrose",', '"2": "canterbury bells"}')
    found = new_split("OxfordFlowers", tmp_path)
    assert found["image_00001.jpg"] == (1, "canterbury bells")
    assert found["image_00020.jpg"] == (0, "pink primrose")


def test_sun_drops_the_letter_and_reverses_the_path(tmp_path):
    folder = tmp_path / "sun397"
    categories = ["/a/abbey", "/a/apse/indoor", "/c/church/outdoor"]
    images = [f"{category}/sun_{i}.jpg" for category in categories for i in range(6)]
    write_images(folder / "SUN397", (image[1:] for image in images))
    write_text(folder / "ClassName.txt", *categories)
    write_text(folder / "Training_01.txt", *(i for i in images if not i.endswith("_5.jpg")))
    write_text(folder / "Testing_01.txt", *(i for i in images if i.endswith("_5.jpg")))
    found = new_split("SUN397", tmp_path)
    assert found["a/abbey/sun_1.jpg"] == (0, "abbey")
    assert found["a/apse/indoor/sun_5.jpg"] == (1, "indoor apse")
    assert found["c/church/outdoor/sun_0.jpg"] == (2, "outdoor church")


def test_ucf_splits_camel_case_and_counts_from_one(tmp_path):
    folder = tmp_path / "ucf101"
    actions = {"ApplyEyeMakeup": "Apply_Eye_Makeup", "YoYo": "Yo_Yo"}
    videos = [f"{action}/v_{action}_g0{i}_c01" for action in actions for i in range(6)]
    write_text(folder / "ucfTrainTestlist" / "classInd.txt", "1 ApplyEyeMakeup", "2 YoYo")
    write_text(
        folder / "ucfTrainTestlist" / "trainlist01.txt",
        *(f"{video}.avi 1" for video in videos if "_g05" not in video),
    )
    write_text(
        folder / "ucfTrainTestlist" / "testlist01.txt",
        *(f"{video}.avi" for video in videos if "_g05" in video),
    )
    frames = (f"{actions[v.split('/')[0]]}/{v.split('/')[1]}.jpg" for v in videos)
    write_images(folder / "UCF-101-midframes", frames)
    found = new_split("UCF101", tmp_path)
    assert found["Apply_Eye_Makeup/v_ApplyEyeMakeup_g05_c01.jpg"] == (0, "Apply_Eye_Makeup")
    assert found["Yo_Yo/v_YoYo_g00_c01.jpg"] == (1, "Yo_Yo")


def test_lists_that_do_not_fit_together_are_refused(tmp_path):
    write_text(tmp_path / "sun397" / "ClassName.txt", "/a/abbey")
    write_text(tmp_path / "sun397" / "Training_01.txt", "/z/zoo/sun_1.jpg")
    write_text(tmp_path / "sun397" / "Testing_01.txt")
    with pytest.raises(UserError, match="do not fit together: '/z/zoo' is not among the classes"):
        build("SUN397", tmp_path, ALLOW_NEW_SPLIT=True)


def test_a_missing_annotation_file_is_named(tmp_path):
    (tmp_path / "oxford_pets").mkdir()
    with pytest.raises(UserError, match=r"no file .*annotations/trainval.txt"):
        build("OxfordPets", tmp_path, ALLOW_NEW_SPLIT=True)
    (tmp_path / "stanford_cars").mkdir()
    with pytest.raises(UserError, match=r"no file .*devkit/cars_meta.mat"):
        build("StanfordCars", tmp_path, ALLOW_NEW_SPLIT=True)


def aircraft(root: Path) -> Path:
    folder = root / "fgvc_aircraft"
    write_text(folder / "variants.txt", "707-320", "DC-10", "Challenger 600")
    variants = {"0100": "Challenger 600", "0200": "707-320", "0300": "DC-10"}
    for part in ("train", "val", "test"):
        lines = (f"{part}{number} {variant}" for number, variant in variants.items())
        write_text(folder / f"images_variant_{part}.txt", *lines)
        write_images(folder / "images", (f"{part}{number}.jpg" for number in variants))
    return folder


def test_aircraft_labels_are_line_numbers_of_the_variants(tmp_path):
    folder = aircraft(tmp_path)
    dataset = build("FGVCAircraft", tmp_path)
    assert entries(dataset.train_x, folder / "images") == [
        ("train0100.jpg", 2, "Challenger 600"),
        ("train0200.jpg", 0, "707-320"),
        ("train0300.jpg", 1, "DC-10"),
    ]
    assert dataset.classnames == ["707-320", "DC-10", "Challenger 600"]
    assert [len(dataset.val), len(dataset.test)] == [3, 3]


def test_an_aircraft_that_is_no_variant_is_refused(tmp_path):
    write_text(aircraft(tmp_path) / "variants.txt", "707-320", "DC-10")
    with pytest.raises(UserError, match=r"variant 'Challenger 600' is not in variants.txt"):
        build("FGVCAircraft", tmp_path)


CIFAR = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def test_cifar10_keeps_its_label_order_and_official_test_images(tmp_path):
    for part, count in (("train", 10), ("test", 2)):
        images = (f"{part}/{name}/{i:05d}.png" for name in CIFAR for i in range(count))
        write_images(tmp_path / "cifar10", images)
    dataset = build("CIFAR10FewShot", tmp_path, NUM_SHOTS=1)
    assert dataset.classnames == CIFAR
    everything = build("CIFAR10FewShot", tmp_path)
    assert [len(x) for x in (everything.train_x, everything.val, everything.test)] == [80, 20, 20]
    assert all("/test/" in image.impath for image in everything.test)
    assert len(dataset.train_x) == 10
