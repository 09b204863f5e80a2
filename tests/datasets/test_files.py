"""Folders of images, listed once."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

import coop_cmp.datasets.files
from coop_cmp.datasets.files import list_images
from tests.datasets.trees import build


def folder_of(root: Path, *names: str) -> Path:
    folder = root / "images" / "cats"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    os.utime(folder, (1_000_000, 1_000_000))
    return folder


def listed(root: Path) -> list[str]:
    return list_images(root / "images", ["cats"], root)["cats"]


def test_images_are_sorted_and_other_files_left_out(tmp_path):
    folder_of(tmp_path, "b.JPEG", "a.png", ".hidden.png", "Thumbs.db", "README.txt")
    assert listed(tmp_path) == ["a.png", "b.JPEG"]


def test_an_unchanged_folder_is_not_listed_again(tmp_path, monkeypatch):
    folder_of(tmp_path, "a.png", "b.png")
    first = listed(tmp_path)
    monkeypatch.setattr(os, "listdir", lambda path: pytest.fail(f"listed {path}"))
    assert listed(tmp_path) == first


def test_a_changed_folder_is_listed_again(tmp_path):
    folder = folder_of(tmp_path, "a.png")
    listed(tmp_path)
    (folder / "b.png").touch()
    assert listed(tmp_path) == ["a.png", "b.png"]
    # It changed a moment ago and may change again within the same time stamp: not cached.
    assert "cats" not in json.loads((tmp_path / "file_list.json").read_text())["folders"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"folders": {"cats": 3}}', b"\xff", b'{"fol'])
def test_a_torn_cache_is_made_again(tmp_path, content):
    folder_of(tmp_path, "a.png")
    (tmp_path / "file_list.json").write_bytes(content)
    assert listed(tmp_path) == ["a.png"]
    assert json.loads((tmp_path / "file_list.json").read_text())["folders"]["cats"][1] == "a.png"


def test_imagenet_sized_lists_open_in_seconds(tmp_path, monkeypatch, capsys):
    ids = [f"n{10_000_000 + 37 * i}" for i in range(1000)]
    folder = tmp_path / "imagenet"
    for part in ("train", "val"):
        for wordnet_id in ids:
            path = folder / "images" / part / wordnet_id
            path.mkdir(parents=True)
            os.utime(path, (1_000_000, 1_000_000))
    lines = (f"{wordnet_id} class {n}\n" for n, wordnet_id in enumerate(ids))
    (folder / "classnames.txt").write_text("".join(lines))
    listings = []

    def file_names(path: str) -> set[str]:
        listings.append(path)
        wordnet_id, count = Path(path).name, 1281 if "train" in path else 50
        return {f"{wordnet_id}_{i}.JPEG" for i in range(count)}

    monkeypatch.setattr(coop_cmp.datasets.files, "file_names", file_names)
    seconds = []
    for shots, images in ((16, 16_000), (16, 16_000), (-1, 1_281_000)):
        start = time.process_time()
        dataset = build("ImageNet", tmp_path, NUM_SHOTS=shots)
        seconds.append(time.process_time() - start)
        assert len(dataset.train_x) == images
    assert len(listings) == 2000
    assert seconds[0] < 20
    assert max(seconds[1:]) < 5
