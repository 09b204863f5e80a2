"""Any byte or value of dataset.yaml and split.json changed: read as meant, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

import coop_cmp.trainers  # noqa: F401 - declares the methods, as every command does
from coop_cmp.config import read
from coop_cmp.config.resolve import resolve
from coop_cmp.datasets.folder import ImageFolder
from coop_cmp.datasets.own import add_folder
from coop_cmp.errors import UserError
from tests.conftest import ROOT
from tests.faults.changes import other_bytes, other_trees, tries

PARTS = ("train", "val", "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of four images with their split."""
    folder = tmp_path_factory.mktemp("data") / "cats"
    for shade, name in enumerate(("tabby", "manx")):
        (folder / name).mkdir(parents=True)
        for i in range(4):
            Image.new("L", (8, 8), 50 * shade + i).save(folder / name / f"{i}.png")
    dataset(folder)
    return folder


def dataset(folder: Path, config: Path | None = None) -> ImageFolder:
    """The data set by its config, or by its folder alone."""
    given: dict[str, Any] = {"DATASET.NAME": "ImageFolder", "DATASET.ROOT": str(folder)}
    files = {"--dataset-config-file": str(config)} if config else {}
    return ImageFolder(resolve(ROOT, files, {**given, "DATASET.ALLOW_NEW_SPLIT": True}, {}))


def lists(found: ImageFolder) -> dict[str, list[tuple[str, int, str]]]:
    """The lists of a data set as a split file has them."""
    parts = dict(zip(PARTS, (found.train_x, found.val or [], found.test), strict=True))
    return {
        part: [(str(Path(x.impath).relative_to(found.image_dir)), x.label, x.classname) for x in xs]
        for part, xs in parts.items()
    }


def check_split_file(folder: Path, content: bytes) -> None:
    """Read it as it says, or refuse it by the name of its folder."""
    file = folder / "split.json"
    original, before = file.read_bytes(), dataset(folder)
    file.write_bytes(content)
    try:
        found, refusal = dataset(folder), ""
    except UserError as error:
        found, refusal = None, str(error)
    finally:
        file.write_bytes(original)
    if found is None:
        assert str(folder) in refusal
    else:
        assert lists(found) == split_of(content)
        assert (found.digest == before.digest) == (lists(found) == lists(before))


def split_of(content: bytes) -> dict[str, list[tuple[Any, ...]]]:
    """The lists of a split file."""
    tree = json.loads(content)
    return {part: [tuple(item) for item in tree[part]] for part in PARTS}


def check_config(folder: Path, output: Path, content: bytes) -> None:
    """Use it as it says and leave it, or refuse it by its name."""
    config = output / "cats" / "dataset.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_bytes(content)
    try:
        add_folder(folder, config)
        found, refusal = dataset(folder, config), ""
    except UserError as error:
        found, refusal = None, str(error)
    if found is None:
        assert str(config) in refusal or str(folder) in refusal
        return
    before, after = yaml.safe_load(content) or {}, yaml.safe_load(config.read_text())
    known, node = before.get("DATASET", {}), after["DATASET"]
    assert {**before, "DATASET": node} == after
    for key in known.keys() - {"ROOT"}:
        assert read(f"DATASET.{key}", known[key]) == read(f"DATASET.{key}", node[key])
    assert found.classnames == list(node["CLASSNAMES"] or ["manx", "tabby"])


def test_any_change_of_a_split(folder: Path, kills: int) -> None:
    whole = (folder / "split.json").read_bytes()
    trees = other_trees(json.loads(whole)).map(lambda tree: json.dumps(tree).encode())
    tries(50 * kills, other_bytes(whole) | trees, lambda content: check_split_file(folder, content))


CONFIG = {
    "DATASET": {
        "NAME": "ImageFolder",
        "TEMPLATE": "a {}.",
        "CLASSNAMES": ["Manx", "Tabby"],
        "ALLOW_NEW_SPLIT": True,
    },
    "OPTIM": {"LR": 0.1},
}


def test_any_change_of_the_settings(folder: Path, tmp_path: Path, kills: int) -> None:
    trees = other_trees(CONFIG).map(lambda t: yaml.safe_dump(t).encode(errors="surrogatepass"))
    changes = other_bytes(yaml.safe_dump(CONFIG).encode()) | trees
    tries(50 * kills, changes, lambda content: check_config(folder, tmp_path, content))
