"""Folders of one's own images, whatever they are called and whatever lies in them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
import yaml
from PIL import Image

from coop_cmp import cli
from coop_cmp.datasets.files import read_matlab
from coop_cmp.datasets.own import add_folder, own_name
from coop_cmp.errors import UserError
from tests.datasets.trees import build, pets


def make(folder: Path) -> Path:
    """Make a folder with two classes of four images."""
    for shade, kind in enumerate(("cat", "dog")):
        (folder / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (8, 8), 50 * shade + number).save(folder / kind / f"{number}.png")
    return folder


def sweep(*words: str) -> int:
    return cli.dispatch(["sweep", *words, "--shots", "1", "--dry-run", "--output", "out"])


@pytest.mark.parametrize(
    ("name", "kept"), [("digits", "own_digits"), ("котики", "котики"), ("猫", "猫")]
)
def test_a_folder_is_a_folder_whatever_it_is_called(tmp_path, monkeypatch, capsys, name, kept):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / name)
    assert sweep(f"./{name}", "--seeds", "1", "--trainers", "CoOp", "--commands") == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    config = Path(words[words.index("--dataset-config-file") + 1])
    assert config == tmp_path / "out" / kept / "dataset.yaml"
    assert words[words.index("--output-dir") + 1].startswith(f"{tmp_path}/out/{kept}/CoOp/")
    assert yaml.safe_load(config.read_text())["DATASET"]["ROOT"] == str(tmp_path / name)
    assert sweep("digits", "--seeds", "1", "--trainers", "CoOp", "--commands") == 0
    assert "configs/datasets/digits.yaml" in capsys.readouterr().out, "a name is a name"


def test_names_are_kept_and_never_collide(tmp_path):
    kept = ["котики", "猫", "my cats", "my-cats", "a.b", "été", "_x"]
    changed = ["-x", ".x", "all", "a\nb", "a\tb", "a_b\x7f", os.fsdecode(b"\xff"), "_\x01", "\x01_"]
    assert [own_name(tmp_path / name) for name in kept] == kept
    names = [own_name(tmp_path / name) for name in changed]
    assert len({*kept, *names}) == len(kept) + len(changed)
    for name in [*names, own_name(Path("/"))]:
        assert name.encode().decode().isprintable()
        assert Path(name).parts == (name,)
        assert name[0] not in "-."


@pytest.mark.parametrize("bad", ["pets/cat/\udcff.png", "pets/\udcfe/0.png", "\udcff/cat/0.png"])
def test_names_that_are_not_utf8_are_refused_before_any_run(tmp_path, monkeypatch, bad):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "pets")
    for number in range(4):
        file = tmp_path / bad.replace("0", str(number))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    with pytest.raises(UserError, match="not UTF-8; rename it") as caught:
        sweep(f"./{Path(bad).parts[0]}")
    assert str(caught.value).isascii()


def test_a_prompt_that_is_too_long_is_not_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "pets")
    with pytest.raises(UserError, match="prompt too long"):
        sweep("./pets", "--template", "a photo of a {}." + " very" * 80)
    assert not list(tmp_path.rglob("dataset.yaml"))


def test_what_a_user_adds_to_the_settings_survives(tmp_path):
    folder, config = make(tmp_path / "pets"), tmp_path / "out/pets/dataset.yaml"
    add_folder(folder, config)
    config.write_text(f"# by hand\n{config.read_text()}OPTIM: {{LR: 0.5}}\n")
    edited = config.read_text()
    add_folder(folder, config)
    assert config.read_text() == edited
    add_folder(folder, config, "a {}.")
    written = yaml.safe_load(config.read_text())
    assert written["OPTIM"] == {"LR": 0.5}
    assert written["DATASET"]["TEMPLATE"] == "a {}."


@pytest.mark.parametrize("content", [b"", b"text", b"MATLAB 5.0 MAT-file".ljust(200)])
def test_a_damaged_matlab_file_is_named(tmp_path, content):
    (tmp_path / "labels.mat").write_bytes(content)
    with pytest.raises(UserError, match=r"labels\.mat: not a MATLAB file"):
        read_matlab(tmp_path / "labels.mat")


def test_a_link_that_leads_out_of_the_data_folder_is_followed(tmp_path):
    image = pets(tmp_path) / "images" / "pug_0.jpg"
    image.rename(tmp_path / "elsewhere.jpg")
    image.symlink_to(tmp_path / "elsewhere.jpg")
    assert str(image) in [item.impath for item in build("OxfordPets", tmp_path).train_x]
