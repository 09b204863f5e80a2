"""Each kind of broken folder has a message of its own."""

from __future__ import annotations

import json
import os

import pytest

from coop_cmp.errors import UserError
from tests.datasets.trees import build, pets

SPLIT = "split_zhou_OxfordPets.json"


def test_a_wrong_root_is_named_with_the_option(tmp_path):
    with pytest.raises(UserError, match=r"OxfordPets .*oxford_pets.*--root.*docs/datasets.md"):
        build("OxfordPets", "")
    with pytest.raises(UserError, match=rf"no folder {tmp_path}/oxford_pets; --root.*docs/"):
        build("OxfordPets", tmp_path)


def test_a_missing_split_file_names_it_its_place_and_its_source(tmp_path):
    file = pets(tmp_path) / SPLIT
    file.unlink()
    source = "https://drive.google.com/file/d/1501r8Ber4nNKvmlFVQZ8SeUHTcdTTEqs"
    with pytest.raises(UserError, match=f"{file}; .* {source} .*DATASET.ALLOW_NEW_SPLIT True"):
        build("OxfordPets", tmp_path)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"train": []}', '{"train": 1}', '{"train": [[1]]}']
)
def test_a_file_that_is_no_split_is_refused(tmp_path, content):
    folder = pets(tmp_path)
    (folder / SPLIT).write_text(content)
    with pytest.raises(UserError, match=r"is not a split file.*download it again"):
        build("OxfordPets", tmp_path)


def test_missing_images_are_counted_and_the_first_is_named(tmp_path):
    folder = pets(tmp_path)
    (folder / "images" / "pug_3.jpg").unlink()
    (folder / "images" / "beagle_t.jpg").unlink()
    with pytest.raises(UserError, match=r"2 images of the split are missing.*'pug_3.jpg'"):
        build("OxfordPets", tmp_path, NUM_SHOTS=1)
    (folder / "images").rename(folder / "pictures")
    with pytest.raises(UserError, match="45 images of the split are missing"):
        build("OxfordPets", tmp_path)


@pytest.mark.parametrize("part", ["train", "test"])
def test_an_empty_list_is_refused(tmp_path, part):
    folder = pets(tmp_path)
    content = json.loads((folder / SPLIT).read_text())
    (folder / SPLIT).write_text(json.dumps(content | {part: []}))
    with pytest.raises(UserError, match=f"the {part} list is empty"):
        build("OxfordPets", tmp_path)


def test_a_pipe_among_the_images_is_no_image(tmp_path):
    folder = pets(tmp_path)
    image = folder / "images" / "pug_0.jpg"
    image.unlink()
    os.mkfifo(image)
    with pytest.raises(UserError, match=r"1 images of the split are missing .*'pug_0.jpg'"):
        build("OxfordPets", tmp_path)


def test_published_names_that_read_the_same_are_noted(tmp_path):
    folder = pets(tmp_path)
    text = (folder / SPLIT).read_text().replace('"beagle"', '"Birman_"')
    (folder / SPLIT).write_text(text)
    notes = build("OxfordPets", tmp_path).notes
    assert notes == ["the classes 'Birman_' and 'birman' read the same in a prompt"]


LEAVES = r"val entry .* leaves the data folder: refused"
NO_LABEL = r"label of val entry 'birman_t.jpg' must be a whole"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (["../../secret.jpg", 1, "birman"], LEAVES),
        (["/etc/passwd", 1, "birman"], LEAVES),
        (["a/../../b.jpg", 1, "birman"], LEAVES),
        (["..\\x.jpg", 1, "birman"], LEAVES),
        (["birman_t.jpg", -1, "birman"], NO_LABEL),
        (["birman_t.jpg", 1.0, "birman"], NO_LABEL),
        (["birman_t.jpg", "1", "birman"], NO_LABEL),
        (["birman_t.jpg", None, "birman"], NO_LABEL),
        (["birman_t.jpg", True, "birman"], NO_LABEL),
        (["beagle_t.jpg", 0, "basset"], "label 0 has two class names, 'beagle' and 'basset'"),
        (
            ["beagle_t.jpg", 4, "sphynx"],
            r"labels must be 0 to 4.*2 of them have none.*3 \(no name",
        ),
        (["pug_0.jpg", 10**18, "giant"], "999999999999999998 of them have none, the first is 3"),
    ],
)
def test_an_entry_that_is_none_is_refused(tmp_path, entry, reason):
    folder = pets(tmp_path)
    (tmp_path / "secret.jpg").write_bytes((folder / "images" / "pug_1.jpg").read_bytes())
    content = json.loads((folder / SPLIT).read_text())
    content["val"][2] = entry
    (folder / SPLIT).write_text(json.dumps(content))
    with pytest.raises(UserError, match=reason):
        build("OxfordPets", tmp_path)
