"""The embedded data sets: parts, pictures, shifts, and a folder that is whole or not there."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from coop_cmp.datasets.digits import Digits
from coop_cmp.datasets.drawn import is_complete
from tests.datasets.trees import build

SPLIT_FILE = "split_Digits.json"
SHIFTED = ("DigitsNoise", "DigitsBlur", "DigitsRotate", "DigitsInvert")
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ("Digits", *SHIFTED):
        build(name, folder)
    return folder


def number(impath: str) -> int:
    return int(Path(impath).stem)


def pixels(impath: str) -> np.ndarray:
    return np.asarray(Image.open(impath)).astype(float)


def test_the_three_parts_are_disjoint_stratified_and_hold_every_digit(root):
    data = build("Digits", root)
    parts = [[number(d.impath) for d in part] for part in (data.train_x, data.val, data.test)]
    assert [len(part) for part in parts] == [400, 200, 1197]
    assert sorted(parts[0] + parts[1] + parts[2]) == list(range(1797))
    assert set(Counter(d.label for d in data.train_x).values()) == {40}
    assert set(Counter(d.label for d in data.val).values()) == {20}
    assert data.classnames == NAMES


def test_labels_and_pictures_are_those_of_scikit_learn(root):
    source = load_digits()
    data = build("Digits", root)
    for item in (*data.train_x, *data.val, *data.test):
        assert item.label == source.target[number(item.impath)]
        assert item.classname == NAMES[item.label]
    for item in data.test[::100]:
        small = pixels(item.impath).reshape(8, 4, 8, 4).mean((1, 3))
        original = source.images[number(item.impath)] * 255 / 16
        assert np.corrcoef(small.ravel(), original.ravel())[0, 1] > 0.97
        assert np.abs(small - original).mean() < 25


@pytest.mark.parametrize("name", SHIFTED)
def test_a_shifted_set_has_the_test_pictures_in_the_same_order(root, name):
    plain, data = build("Digits", root).test, build(name, root, NUM_SHOTS=4)
    shifted = data.test
    assert [number(d.impath) for d in plain] == [number(d.impath) for d in shifted]
    assert [d.label for d in plain] == [d.label for d in shifted]
    assert (data.classnames, data.val, data.pictures_of) == (NAMES, None, "digits")
    assert data.sizes == (10, 1197, 0, 1197)
    changes = [
        np.abs(pixels(a.impath) - pixels(b.impath)).mean()
        for a, b in zip(plain[::100], shifted[::100], strict=True)
    ]
    assert min(changes) > 2


def test_each_shift_does_what_it_says(root):
    tests = {name: build(name, root).test for name in ("Digits", *SHIFTED)}
    plain, noise, blur, _, invert = (pixels(test[5].impath) for test in tests.values())
    assert np.array_equal(invert, 255 - plain)
    roughness = [np.abs(np.diff(x)).mean() for x in (blur, plain, noise)]
    assert roughness[0] < 0.6 * roughness[1] < roughness[1] < 0.6 * roughness[2]
    pairs = zip(tests["Digits"][:50], tests["DigitsRotate"][:50], strict=True)
    turns = [rotation(pixels(a.impath), pixels(b.impath)) for a, b in pairs]
    assert min(turns) < -15 < 15 < max(turns)
    assert max(map(abs, turns)) <= 45


def rotation(picture: np.ndarray, turned: np.ndarray) -> int:
    """The angle, in steps of five degrees, that explains the turned picture best."""
    image = Image.fromarray(picture.astype(np.uint8))
    angles = range(-90, 91, 5)
    return min(angles, key=lambda a: np.abs(np.asarray(image.rotate(a)) - turned).sum())


def test_building_is_deterministic(root, tmp_path):
    build("DigitsNoise", tmp_path)
    files = sorted(Path(root, "digits_noise", "images").rglob("*.png"))
    assert len(files) == 1197
    for file in files[::50]:
        assert file.read_bytes() == (tmp_path / file.relative_to(root)).read_bytes()


def test_a_second_construction_writes_nothing(root):
    before = {f: f.stat().st_mtime_ns for f in root.rglob("*")}
    build("Digits", root)
    assert {f: f.stat().st_mtime_ns for f in root.rglob("*")} == before


def test_a_torn_folder_is_noticed_and_rebuilt(tmp_path):
    build("DigitsInvert", tmp_path)
    folder = tmp_path / "digits_invert"
    split, victim = folder / SPLIT_FILE, next((folder / "images" / "six").glob("*.png"))
    whole = split.read_bytes()
    for file in (split, victim):
        content = file.read_bytes()
        file.write_bytes(b"")
        assert not is_complete(folder, SPLIT_FILE)
        file.unlink()
        assert not is_complete(folder, SPLIT_FILE)
        file.write_bytes(content)
        assert is_complete(folder, SPLIT_FILE)
    split.write_bytes(whole[:1000])
    victim.unlink()
    build("DigitsInvert", tmp_path)
    assert split.read_bytes() == whole
    assert Image.open(victim).size == (32, 32)
    assert [f.name for f in tmp_path.iterdir()] == ["digits_invert"]


def test_a_run_that_finishes_first_is_as_good(tmp_path, monkeypatch):
    plain_draw, folder = Digits.draw, tmp_path / "digits_blur"

    def draw(self: Digits, path: str, label: int) -> tuple[Image.Image, np.random.Generator]:
        if not folder.exists():  # the other run puts its folder in place while this one draws
            monkeypatch.setattr(Digits, "draw", plain_draw)
            build("DigitsBlur", tmp_path)
            (folder / "by the other run").touch()
        return plain_draw(self, path, label)

    monkeypatch.setattr(Digits, "draw", draw)
    assert len(build("DigitsBlur", tmp_path).test) == 1197
    assert (folder / "by the other run").exists()
    assert [f.name for f in tmp_path.iterdir()] == ["digits_blur"]


def test_shots_and_base_classes_come_from_the_shared_rules(root):
    data = build("Digits", root, NUM_SHOTS=8, SUBSAMPLE_CLASSES="new")
    assert Counter(d.label for d in data.train_x) == dict.fromkeys(range(5), 8)
    assert Counter(d.label for d in data.val) == dict.fromkeys(range(5), 4)
    assert data.classnames == NAMES[5:]
    base = build("DigitsBlur", root, SUBSAMPLE_CLASSES="base")
    assert {d.label for d in base.test} == set(range(5))


def test_without_a_root_the_pictures_go_to_the_folder_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = build("DigitsInvert", "")
    assert Path(data.test[0].impath).is_relative_to(tmp_path / "data" / "digits_invert")
    split = json.loads((tmp_path / "data" / "digits_invert" / SPLIT_FILE).read_text())
    assert [len(split[part]) for part in ("train", "val", "test")] == [1197, 0, 1197]
