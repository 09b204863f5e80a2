"""Folders of one's own images, from main.sh's argument to the runs' settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from PIL import Image

from coop_cmp.config.resolve import resolve
from coop_cmp.datasets.folder import ImageFolder, folder_digest
from coop_cmp.datasets.own import add_folder, own_name
from coop_cmp.errors import UserError
from coop_cmp.runs import load
from tests.commands import command
from tests.conftest import ROOT
from tests.datasets.trees import build

datasets_command = command("datasets")
main = command("sweep")


def add(folder: Path, output: Path, template: str = "", names: str = "") -> str:
    """Make a folder known below an output directory; its name."""
    name = own_name(folder)
    add_folder(folder, output / name / "dataset.yaml", template, names)
    return name


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Four grey pictures of each of two classes."""
    for shade, name in enumerate(("maine_coon", "maine_coon mix")):
        for i in range(4):
            file = tmp_path / "my cats" / name / f"{i}.PNG"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 50 * shade + i).save(file, "png")
    return tmp_path / "my cats"


def settings(output: Path) -> dict:
    return yaml.safe_load((output / "my cats/dataset.yaml").read_text())["DATASET"]


def test_class_folders_become_a_data_set_with_a_printed_list(images, tmp_path, capsys):
    assert add(images, tmp_path / "out") == "my cats"
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split() == ["folder", "name", "prompt"]
    assert shown[2].split() == [*["maine_coon"] * 2, *["a", "photo", "of", "a", "maine", "coon."]]
    found = settings(tmp_path / "out")
    assert (found["NAME"], found["ROOT"]) == ("ImageFolder", str(images))
    assert found["ALLOW_NEW_SPLIT"] is True


def test_names_and_prompt_are_kept_until_others_are_given(images, tmp_path, capsys):
    names = tmp_path / "names.txt"
    names.write_text("maine_coon mix  mixed breed\n\nmaine_coon Maine Coon\n")
    add(images, tmp_path / "out", "a drawing of a {}.", str(names))
    assert "a drawing of a mixed breed." in capsys.readouterr().out
    add(images, tmp_path / "out")
    assert settings(tmp_path / "out")["CLASSNAMES"] == ["Maine Coon", "mixed breed"]
    assert settings(tmp_path / "out")["TEMPLATE"] == "a drawing of a {}."
    add(images, tmp_path / "out", "a {}.")
    assert settings(tmp_path / "out")["TEMPLATE"] == "a {}."
    names.write_text("maine_coon Maine Coon\n")
    with pytest.raises(UserError, match="names no class for the folder 'maine_coon mix'"):
        add(images, tmp_path / "out", names=str(names))
    names.write_text("persian Persian\n")
    with pytest.raises(UserError, match="does not begin with a class folder"):
        add(images, tmp_path / "out", names=str(names))


def test_a_template_without_a_place_for_the_name_is_refused_and_not_kept(images, tmp_path):
    add(images, tmp_path / "out", "a drawing of a {}.")
    with pytest.raises(UserError, match=r"--template.*one \{\} for the class name"):
        add(images, tmp_path / "out", "a drawing of a")
    assert settings(tmp_path / "out")["TEMPLATE"] == "a drawing of a {}."


def own_set(folder: Path) -> ImageFolder:
    return build("ImageFolder", folder, ALLOW_NEW_SPLIT=True)


def test_an_image_that_is_gone_is_told_with_the_file_that_lists_it(images):
    own_set(images)
    (images / "maine_coon/0.PNG").unlink()
    with pytest.raises(UserError, match=r"maine_coon/0.PNG.*without .*split.json .* split anew"):
        own_set(images)


def test_a_folder_that_cannot_be_trained_on_is_refused_before_any_run(images, tmp_path):
    files = list((images / "maine_coon").iterdir())
    files[0].unlink()
    with pytest.raises(UserError, match="maine_coon: only 3 images, too few for a split"):
        add(images, tmp_path / "out")
    for file in files[1:]:
        file.unlink()
    with pytest.raises(UserError, match=r"empty class: no image in .*maine_coon"):
        add(images, tmp_path / "out")
    (images / "train").mkdir()
    with pytest.raises(UserError, match="train/ alone"):
        add(images, tmp_path / "out")
    (images / "test").mkdir()
    with pytest.raises(UserError, match=r"no class folders in .*train"):
        add(images, tmp_path / "out")
    for part in ("train", "test"):
        shutil.copytree(images / "maine_coon mix", images / part / "mix")
    with pytest.raises(UserError, match="expected two classes or more, found 'mix' alone"):
        add(images, tmp_path / "out")


def test_two_folders_of_one_name_do_not_share_their_runs(images, tmp_path):
    add(images, tmp_path / "out")
    other = tmp_path / "elsewhere"
    other.mkdir()
    images.rename(other / "my cats")
    add(other / "my cats", tmp_path / "out")  # it has moved
    images.mkdir()
    for name in ("a", "b"):
        (images / name).symlink_to(other / "my cats/maine_coon")
    with pytest.raises(UserError, match="is of another folder"):
        add(images, tmp_path / "out")


def sweep(*arguments: str) -> int:
    return main([*arguments, "--shots", "1", "--seeds", "1", "--dry-run"])


def test_a_sweep_takes_a_folder_and_then_its_name(images, tmp_path, capsys, monkeypatch):
    output = ["--output", str(tmp_path / "out"), "--data", str(tmp_path)]
    assert sweep(str(images), "--backbones", "GlyphCLIP", *output) == 0
    assert "open    my cats/CoOp_CMP/GlyphCLIP_1shots_lambda0.01/seed1" in capsys.readouterr().out
    assert sweep("my cats", *output) == 0
    assert "open    my cats/ZeroshotCLIP/ViT-B-16/seed1" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert sweep("my cats", *output) == 0
    with pytest.raises(UserError, match=r"there is no folder \./nothing"):
        sweep("./nothing", *output)
    with pytest.raises(UserError, match="are for a folder of your own"):
        sweep("digits", "--template", "a {}.", *output)


def test_the_check_takes_a_folder(images, capsys):
    assert datasets_command(["check", str(images), "--full"]) == 0
    out = capsys.readouterr().out
    assert str(images) in out
    assert out.splitlines()[2].split()[-7:] == ["2", "4", "2", "2", "8", "0", "0"]
    (images / "maine_coon/2.PNG").write_bytes(b"no image")
    assert datasets_command(["check", str(images), "--full"]) == 1
    assert "1 of 8 opened images are unreadable" in capsys.readouterr().out


def test_other_images_or_another_split_are_another_data_set(images, tmp_path):
    first = own_set(images)
    copy = Path(shutil.copytree(images, tmp_path / "elsewhere"))
    assert own_set(copy).digest == first.digest == own_set(images).digest
    names = {first.image_name(item.impath) for item in first.test}
    assert names == {own_set(copy).image_name(item.impath) for item in own_set(copy).test}

    larger = copy / "maine_coon/0.PNG"
    larger.write_bytes(larger.read_bytes() + b"-")
    other = own_set(copy)
    assert other.digest != first.digest
    assert names.isdisjoint(other.image_name(item.impath) for item in other.test)

    split = images / "split.json"
    content = json.loads(split.read_text())
    content["val"], content["test"] = content["test"], content["val"]
    split.write_text(json.dumps(content))
    assert own_set(images).digest != first.digest


def test_the_digest_is_known_before_the_split_is_written(images):
    before = folder_digest(str(images), True)
    assert not (images / "split.json").exists()
    assert own_set(images).digest == before == folder_digest(str(images), True)


def test_runs_know_the_folder_by_its_name_and_images(images, tmp_path):
    add(images, tmp_path / "out")
    config = tmp_path / "out/my cats/dataset.yaml"

    def built() -> ImageFolder:
        return ImageFolder(resolve(ROOT, {"--dataset-config-file": str(config)}, {"SEED": 1}, {}))

    first = settings(tmp_path / "out")
    assert (first["TITLE"], first["CONTENT"]) == ("my cats", built().digest)
    (images / "maine_coon/0.PNG").write_bytes(b"other")
    with pytest.raises(UserError, match=r"have changed since .* give the folder"):
        built()
    add(images, tmp_path / "out")
    assert settings(tmp_path / "out")["CONTENT"] == built().digest != first["CONTENT"]


def test_train_knows_a_folder_by_its_name_and_images_without_a_file_that_says_so(
    run, pictures, tmp_path
):
    run("one")
    Image.new("RGB", (8, 8)).save(pictures / "test/cat/0.png")
    assert "holds a run with other settings (DATASET.CONTENT is" in run("one", code=2)
    run("two")
    frame = load(tmp_path)
    assert set(frame["dataset"]) == {pictures.name}
    assert frame["digest"].nunique() == frame["group"].nunique() == 2


def test_a_path_is_a_path_whatever_it_is_called(images, tmp_path, monkeypatch, capsys):
    images.rename(tmp_path / "dtd")
    monkeypatch.chdir(tmp_path)
    assert datasets_command(["check", "./dtd", "--full", "--data", "."]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:4] == ["./dtd", "ok", "2", "4"]
    assert datasets_command(["check", "dtd", "--data", "."]) == 1
