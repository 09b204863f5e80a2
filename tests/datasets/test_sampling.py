"""Which images a run sees."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from coop_cmp.datasets.sampling import (
    by_label,
    hold_out,
    split_by_class,
    subsample_classes,
)
from coop_cmp.datasets.splits import Split
from coop_cmp.errors import UserError
from tests.datasets.trees import build, entries, pets

# Drawn by the CoOp codebase itself from the split of trees.pets: (shots, seed) -> train, val.
# a, b, c stand for beagle_, birman_, pug_.
DRAWN_BY_COOP = {
    (1, 1): ("c2 a2 b1", "bv2 cv0 av3"),
    (2, 2): ("c0 c1 a0 a1 b2 b4", "bv2 bv4 cv1 cv4 av0 av4"),
    (4, 3): (
        "c3 c9 c8 c2 a0 a1 a2 b5 b7 b8 b4",
        "bv0 bv4 bv5 bv1 cv2 cv4 cv1 cv0 av5 av3 av4 av1",
    ),
    (8, 1): (
        "c2 c9 c1 c4 c10 c3 c6 c5 a0 a1 a2 b6 b3 b0 b7 b8 b5 b1 b4",
        "bv5 bv3 bv2 bv4 cv1 cv4 cv0 cv5 av0 av5 av4 av2",
    ),
    (16, 0): (
        "c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 c10 c11 a0 a1 a2 b0 b1 b2 b3 b4 b5 b6 b7 b8",
        "bv3 bv5 bv0 bv1 cv4 cv3 cv5 cv1 av3 av2 av1 av4",
    ),
}


def short(paths: list[str]) -> str:
    text = " ".join(Path(path).stem for path in paths)
    return text.replace("beagle_", "a").replace("birman_", "b").replace("pug_", "c")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    pets(folder)
    return folder


@pytest.mark.parametrize(("shots", "seed"), DRAWN_BY_COOP)
def test_the_same_images_as_in_the_coop_codebase_are_drawn(root, shots, seed):
    state = random.getstate()
    dataset = build("OxfordPets", root, NUM_SHOTS=shots, SEED=seed)
    assert random.getstate() == state, "the global generator is left alone"
    train, val = DRAWN_BY_COOP[shots, seed]
    assert short([image.impath for image in dataset.train_x]) == train
    assert short([image.impath for image in dataset.val]) == val
    assert len(dataset.test) == 3


def test_too_many_shots_keep_all_images_and_are_noted(root):
    dataset = build("OxfordPets", root, NUM_SHOTS=10)
    assert Counter(image.classname for image in dataset.train_x) == {
        "pug": 10,
        "birman": 9,
        "beagle": 3,
    }
    expected = "2 of 3 classes have fewer training images than the 10 shots, the smallest 3"
    assert dataset.notes == [expected]


def test_the_drawn_images_are_recorded_with_relative_paths(tmp_path):
    folder = pets(tmp_path)
    dataset = build("OxfordPets", tmp_path, NUM_SHOTS=2, SEED=3)
    record = json.loads((folder / "split_fewshot" / "shot_2-seed_3.json").read_text())
    assert [tuple(i) for i in record["train"]] == entries(dataset.train_x, folder / "images")
    assert [tuple(i) for i in record["val"]] == entries(dataset.val, folder / "images")


def test_pickles_of_the_coop_codebase_are_not_opened(tmp_path):
    folder = pets(tmp_path)
    marker = tmp_path / "unpickled"
    evil = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
    (folder / "split_fewshot").mkdir()
    (folder / "split_fewshot" / "shot_2-seed_1.pkl").write_bytes(evil)
    build("OxfordPets", tmp_path, NUM_SHOTS=2)
    assert not marker.exists()


def test_a_data_folder_that_cannot_be_written_to_costs_one_line(tmp_path, capsys):
    folder = pets(tmp_path)
    (folder / "split_fewshot").write_text("in the way")
    dataset = build("OxfordPets", tmp_path, NUM_SHOTS=1)
    assert len(dataset.train_x) == 3
    assert [line[:11] for line in capsys.readouterr().out.splitlines()] == ["Not stored:"]


def test_an_unseeded_sample_is_new_each_time_not_recorded_and_noted(tmp_path):
    folder = pets(tmp_path)
    runs = [build("OxfordPets", tmp_path, NUM_SHOTS=4, SEED=-1) for _ in range(8)]
    assert len({tuple(entries(run.train_x, folder)) for run in runs}) > 1
    assert not (folder / "split_fewshot").exists()
    assert "without a seed" in runs[0].notes[0]


def test_base_and_new_halves_are_taken_after_sampling_and_relabelled(root):
    everything = build("OxfordPets", root, NUM_SHOTS=2)
    base = build("OxfordPets", root, NUM_SHOTS=2, SUBSAMPLE_CLASSES="base")
    new = build("OxfordPets", root, NUM_SHOTS=2, SUBSAMPLE_CLASSES="new")
    assert base.classnames == ["beagle", "birman"]
    assert new.classnames == ["pug"]
    assert {image.label for image in new.train_x + new.val + new.test} == {0}
    paths = [{image.impath for image in d.train_x} for d in (base, new, everything)]
    assert paths[0] | paths[1] == paths[2]


@pytest.mark.parametrize(("classes", "base"), [(100, 50), (37, 19), (47, 24), (101, 51), (1, 1)])
def test_the_base_half_is_rounded_up(classes, base):
    items = [(f"{y}.jpg", y, str(y)) for y in range(classes)]
    halves = [subsample_classes(Split(items, [], items), half) for half in ("base", "new")]
    assert [len(half.test) for half in halves] == [base, classes - base]


def test_a_class_that_is_too_small_to_split_is_named():
    with pytest.raises(UserError, match="class 'lynx' has 1 images, too few"):
        split_by_class([("lynx/1.jpg", 0, "lynx")], 0.5, 0.2)


@pytest.mark.parametrize("content", [b"", b'{"train": [["../x.jpg", 0, "x"]]}', b"\xff\xfe\x80"])
def test_a_torn_or_foreign_record_is_replaced_and_never_used(tmp_path, content):
    folder = pets(tmp_path)
    first = entries(build("OxfordPets", tmp_path, NUM_SHOTS=2).train_x, folder)
    record = folder / "split_fewshot" / "shot_2-seed_1.json"
    good = record.read_bytes()
    record.write_bytes(content)
    assert entries(build("OxfordPets", tmp_path, NUM_SHOTS=2).train_x, folder) == first
    assert record.read_bytes() == good


def test_folds_hold_every_shot_out_once():
    items = [(f"{label}/{i}.png", label, f"name {label}") for label in range(3) for i in range(8)]
    split = Split(items, [("0/v.png", 0, "name 0")], [("0/t.png", 0, "name 0")])
    assert hold_out(split, "") is split
    folds = [hold_out(split, f"{part}/4") for part in (1, 2, 3, 4)]
    assert sorted(item for fold in folds for item in fold.val) == sorted(items)
    for fold in folds:
        assert sorted(fold.train + fold.val) == sorted(items)
        assert [len(images) for images in by_label(fold.val).values()] == [2, 2, 2]
        assert fold.test == split.test


@pytest.mark.parametrize("fold", ["0/4", "5/4", "1/1", "1", "a/b", "1/4/2", "1/2"])
def test_a_fold_that_is_none_or_needs_more_shots_is_refused(fold):
    reason = "class 'cat' has only 1 training images" if fold == "1/2" else "must be such as 1/4"
    with pytest.raises(UserError, match=reason):
        hold_out(Split([("0/0.png", 0, "cat")], [], []), fold)


def test_a_new_split_is_the_same_on_every_machine():
    items = [(f"{name}{i}", label, name) for label, name in enumerate("ab") for i in range(10)]
    assert split_by_class(items, 0.5, 0.2) == split_by_class(items[::-1], 0.5, 0.2)
    parts = [[path for path, _, _ in part] for part in split_by_class(items, 0.5, 0.2)]
    assert parts == [
        ["a7", "a8", "a1", "a5", "a3", "b9", "b4", "b8", "b6", "b0"],
        ["a4", "a2", "b1", "b7"],
        ["a0", "a9", "a6", "b2", "b3", "b5"],
    ]
