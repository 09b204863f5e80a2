"""The images of a finished test are found where its command found them."""

from __future__ import annotations

import json

from coop_cmp.cli.images import ImageFiles
from coop_cmp.runs.outputs import image_numbers
from coop_cmp.runs.stored import StoredRun

COMMAND = ["coop-cmp", "train", "--trainer", "CoOp", "--seed", "1", "--dataset-config-file"]


def run_of(folder, *command):
    (folder / "run.json").write_text(json.dumps({"command": [*COMMAND, *command]}))
    return StoredRun(folder / "predictions.npz", {"settings": {"DATASET.NAME": "Digits"}})


def test_images_are_found_by_their_numbers_and_nothing_is_made_to_find_them(tmp_path):
    config = ["configs/datasets/digits.yaml", "--config-file", "configs/trainers/CoOp/glyph.yaml"]
    options = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "new"]
    run = run_of(tmp_path, *config, "--root", str(tmp_path / "data"), *options)
    find = ImageFiles()
    assert find(run) == {}
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    files = find(run)
    assert len(files) == 1197
    number, file = next(iter(files.items()))
    part = file.partition("/images/")[2]
    assert image_numbers([f"digits/{part}"]) == number
    assert not (tmp_path / "data/digits/split_fewshot").exists()
    (tmp_path / "run.json").unlink()
    assert find(run) is files, "another run on the same images"
    assert ImageFiles()(run) == {}


def test_a_command_that_is_wrong_by_now_finds_nothing(tmp_path):
    assert ImageFiles()(run_of(tmp_path, "gone.yaml")) == {}
    assert ImageFiles()(run_of(tmp_path, "gone.yaml", "--seed", "one")) == {}
