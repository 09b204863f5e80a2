"""Behind scripts/datasets.sh: check and prepare."""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import coop_cmp.datasets.tools.prepare
from coop_cmp.clip.prompts import DEFAULT_TEMPLATE, TEMPLATES
from coop_cmp.datasets.base import Sizes
from coop_cmp.datasets.oxford_pets import OxfordPets
from coop_cmp.datasets.tools.check import check, known
from coop_cmp.datasets.tools.prepare import prepare
from coop_cmp.errors import UserError
from tests.commands import command
from tests.datasets.trees import build, pets, write_split, write_text

main = command("datasets", handled=True)

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def small_pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A complete OxfordPets, as far as the check can tell."""
    monkeypatch.setattr(OxfordPets, "sizes", Sizes(3, 24, 18, 3))
    return pets(tmp_path)


def test_a_complete_data_set_is_ok(small_pets):
    (report,) = check(["oxford_pets"], str(small_pets.parent), full=True)
    assert (report.state, report.opened, report.problems) == ("ok", 45, [])
    assert report.counts == {"classes": 3, "train": 24, "val": 18, "test": 3}


def test_wrong_counts_are_shown(tmp_path):
    pets(tmp_path)
    (report,) = check(["OxfordPets"], str(tmp_path))
    assert report.problems == [
        "3 classes, not 37",
        "24 train, not 2944",
        "18 val, not 736",
        "3 test, not 3669",
    ]


def test_what_a_run_would_refuse_is_a_problem(small_pets):
    (small_pets / "images" / "pug_1.jpg").unlink()
    (report,) = check(["oxford_pets"], str(small_pets.parent))
    assert report.state == "problems"
    assert "1 images of the split are missing" in report.problems[0]


def test_unreadable_images_and_copies_are_found(small_pets):
    images = small_pets / "images"
    (images / "pug_2.jpg").write_bytes((images / "pug_1.jpg").read_bytes())
    (images / "pug_3.jpg").write_bytes((images / "pug_3.jpg").read_bytes()[:400])
    (report,) = check(["oxford_pets"], str(small_pets.parent), full=True)
    assert report.unreadable == [str(images / "pug_3.jpg")]
    assert report.same_content == [[str(images / "pug_1.jpg"), str(images / "pug_2.jpg")]]
    assert report.problems == [f"1 of 45 opened images are unreadable, such as {images}/pug_3.jpg"]


def test_only_a_sample_is_opened_unless_all_are_asked_for(small_pets, monkeypatch):
    monkeypatch.setattr("coop_cmp.datasets.tools.check.SAMPLE", 5)
    (report,) = check(["oxford_pets"], str(small_pets.parent))
    assert report.opened == 5


def test_training_images_that_are_also_tested_on_are_found(small_pets):
    split = json.loads((small_pets / "split_zhou_OxfordPets.json").read_text())
    lists = [[tuple(item) for item in split[part]] for part in ("train", "val", "test")]
    lists[2][0] = lists[0][1]
    lists[1][1] = lists[1][0]
    write_split(small_pets / "split_zhou_OxfordPets.json", *lists)
    (report,) = check(["oxford_pets"], str(small_pets.parent))
    assert [problem[:40] for problem in report.problems] == [
        "1 images stand twice in val, such as " + str(small_pets)[:3],
        "1 training images are also val or test: ",
    ]


def test_the_class_names_of_imagenet_are_checked(tmp_path):
    folder = tmp_path / "imagenet-sketch"
    write_text(folder / "classnames.txt", "n01 crane", "n02 crane")
    for name in ("n01", "n02"):
        (folder / "images" / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / "images" / name / "1.png")
    (report,) = check(["imagenet_sketch"], str(tmp_path))
    assert "classnames.txt repeats ['crane'], not missile and sunglasses" in report.problems
    assert "classnames.txt begins with ['crane'], not \"tench\"" in report.problems


def test_the_command_shows_a_table_or_json_and_tells_by_its_code(small_pets, capsys):
    root = str(small_pets.parent)
    assert main(["check", "oxford_pets", "--data", root]) == 0
    assert "oxford_pets  ok" in capsys.readouterr().out
    assert main(["check", "--data", root, "--json"]) == 0
    reports = {r["dataset"]: r for r in json.loads(capsys.readouterr().out)}
    assert reports["oxford_pets"]["counts"]["train"] == 24
    assert reports["caltech101"]["state"] == "not found"
    assert main(["check", "caltech101", "--data", root]) == 1
    assert f"no folder {root}/caltech-101" in capsys.readouterr().out
    assert main(["check", "oxfordpet", "--data", root]) == 2
    assert 'did you mean "oxford_pets"' in capsys.readouterr().err


def test_a_relative_path_is_of_the_current_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check", "dtd", "--data", "mine"]) == 1
    assert f"dtd: no folder {tmp_path}/mine/dtd" in capsys.readouterr().out


def batches() -> dict[str, tuple[np.ndarray, list[int]]]:
    rng = np.random.default_rng(0)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    return {name: (rng.integers(0, 256, (10, 3072), np.uint8), [*range(10)]) for name in names}


def cifar_archive(
    path: Path, encode: Callable[[np.ndarray, list[int]], bytes], ending: str
) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, (pixels, labels) in batches().items():
            content = encode(pixels, labels)
            info = tarfile.TarInfo(f"cifar-10/{name}{ending}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def python_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """The bytes that Python 2 pickled, as in the published archive; Python 3 writes others."""
    fortran = pixels.flags.f_contiguous
    raw = pixels.tobytes("F" if fortran else "C")
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    sizes = b"J\xff\xff\xff\xff" * 2
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + sizes + b"K\x00tb"
    shape = b"K\x0aM\x00\x0c\x86"  # (10, 3072)
    order = b"\x88" if fortran else b"\x89"
    state = b"(K\x01" + shape + dtype + order + b"T" + struct.pack("<I", len(raw)) + raw + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + state + b"U\x06labels" + listed + b"u."


def test_the_hand_made_batch_is_a_batch():
    pixels, labels = batches()["test_batch"]
    for order in (pixels, np.asfortranarray(pixels)):
        read = pickle.loads(python_batch(order, labels), encoding="bytes")
        np.testing.assert_array_equal(read[b"data"], pixels)
        assert read[b"labels"] == labels


def binary_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    rows = [bytes([label]) + row.tobytes() for row, label in zip(pixels, labels, strict=True)]
    return b"".join(rows)


@pytest.mark.parametrize(
    ("encode", "ending"),
    [
        (python_batch, ""),
        (lambda pixels, labels: python_batch(np.asfortranarray(pixels), labels), ""),
        (binary_batch, ".bin"),
    ],
)
def test_cifar10_archives_become_the_same_png_files(tmp_path, encode, ending):
    archive = cifar_archive(tmp_path / "archive.tar.gz", encode, ending)
    assert prepare("cifar10", archive, tmp_path / "data") == f"wrote {tmp_path}/data/cifar10"
    pixels, _ = batches()["data_batch_2"]
    written = np.asarray(Image.open(tmp_path / "data" / "cifar10" / "train" / "cat" / "00013.png"))
    np.testing.assert_array_equal(written, pixels[3].reshape(3, 32, 32).transpose(1, 2, 0))
    dataset = build("CIFAR10FewShot", tmp_path / "data")
    assert [len(x) for x in (dataset.train_x, dataset.val, dataset.test)] == [40, 10, 10]
    with pytest.raises(UserError, match="is already there"):
        prepare("cifar10", archive, tmp_path / "data")


def test_a_batch_that_is_an_attack_runs_nothing_and_leaves_nothing(tmp_path):
    marker = tmp_path / "ran"
    attack = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
    archive = cifar_archive(tmp_path / "archive.tar.gz", lambda *_: attack, "")
    with pytest.raises(UserError, match=r"it wants os.system, which CIFAR-10 does not: refused"):
        prepare("cifar10", archive, tmp_path / "data")
    assert not marker.exists()
    assert list((tmp_path / "data").iterdir()) == []


def test_other_and_torn_archives_are_refused(tmp_path):
    archive = cifar_archive(tmp_path / "archive.tar.gz", binary_batch, ".bin")
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(archive.read_bytes()[:5000])
    with pytest.raises(UserError, match="cannot be read"):
        prepare("cifar10", torn, tmp_path / "data")
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as tar:
        tar.add(torn, "something")
    with pytest.raises(UserError, match=r"has no 'data_batch_1.bin'"):
        prepare("cifar10", other, tmp_path / "data")
    with pytest.raises(UserError, match="no file or folder"):
        prepare("cifar10", tmp_path / "nothing", tmp_path / "data")


def test_ucf_frames_get_the_layout_of_the_coop_codebase(tmp_path, monkeypatch):
    for name in ("ApplyEyeMakeup/v_ApplyEyeMakeup_g01_c01.avi", "YoYo/v_YoYo_g01_c01.avi"):
        write_text(tmp_path / "UCF-101" / name)
    frame = Image.new("RGB", (8, 8), "red")
    monkeypatch.setattr(coop_cmp.datasets.tools.prepare, "middle_frame", lambda video: frame)
    done = prepare("ucf101", tmp_path / "UCF-101", tmp_path)
    frames = tmp_path / "ucf101" / "UCF-101-midframes"
    assert done == f"wrote 2 frames to {frames}"
    assert Image.open(frames / "Apply_Eye_Makeup" / "v_ApplyEyeMakeup_g01_c01.jpg").size == (8, 8)
    assert (frames / "Yo_Yo" / "v_YoYo_g01_c01.jpg").is_file()
    assert [path.name for path in (tmp_path / "ucf101").iterdir()] == ["UCF-101-midframes"]


def test_links_in_an_archive_are_not_followed(tmp_path, monkeypatch):
    write_text(tmp_path / "secret.avi")
    write_text(tmp_path / "elsewhere/YoYo/v_YoYo_g01_c02.avi")

    def unpack(archive: Path, folder: Path) -> None:
        write_text(folder / "UCF-101/YoYo/v_YoYo_g01_c01.avi")
        (folder / "UCF-101/YoYo/v_YoYo_g01_c03.avi").symlink_to(tmp_path / "secret.avi")
        (folder / "UCF-101/more").symlink_to(tmp_path / "elsewhere")

    module = coop_cmp.datasets.tools.prepare
    monkeypatch.setattr(module, "unpack", unpack)
    monkeypatch.setattr(module, "middle_frame", lambda video: Image.new("RGB", (8, 8)))
    write_text(tmp_path / "UCF101.rar")
    prepare("ucf101", tmp_path / "UCF101.rar", tmp_path)
    assert [p.name for p in tmp_path.rglob("*.jpg")] == ["v_YoYo_g01_c01.jpg"]


def test_without_the_tools_for_videos_the_message_says_which(tmp_path, monkeypatch):
    write_text(tmp_path / "UCF-101" / "YoYo" / "v_YoYo_g01_c01.avi", "no video")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UserError, match="pip install opencv-python-headless"):
        prepare("ucf101", tmp_path / "UCF-101", tmp_path)
    monkeypatch.setattr(coop_cmp.datasets.tools.prepare.shutil, "which", lambda program: None)
    write_text(tmp_path / "UCF101.rar", "an archive")
    with pytest.raises(UserError, match="install one of: bsdtar, unrar, 7z"):
        prepare("ucf101", tmp_path / "UCF101.rar", tmp_path)


def test_class_names_of_imagenet_are_written_where_they_are_missing(tmp_path):
    train = tmp_path / "imagenet" / "images" / "train"
    for number in range(1000):
        (train / f"n{1440764 + number:08d}").mkdir(parents=True)
    write_text(tmp_path / "imagenetv2" / "classnames.txt", "keep me")
    (tmp_path / "imagenet-sketch").mkdir()
    prepare("imagenet", train, tmp_path)
    lines = (tmp_path / "imagenet" / "classnames.txt").read_text().splitlines()
    assert lines[0] == "n01440764 tench"
    assert len(lines) == 1000
    assert len({line.partition(" ")[2] for line in lines}) == 998
    assert (tmp_path / "imagenet-sketch" / "classnames.txt").read_text().splitlines() == lines
    assert (tmp_path / "imagenetv2" / "classnames.txt").read_text() == "keep me\n"
    with pytest.raises(UserError, match="must hold the 1000 class folders"):
        prepare("imagenet", tmp_path, tmp_path)


def test_the_documentation_lists_what_the_code_knows():
    assert len(known()) == 16
    lines = (REPOSITORY / "docs" / "datasets.md").read_text().splitlines()
    for stem, cls in known().items():
        row, *split = [line for line in lines if line.startswith(f"| {stem} |")]
        assert f"{cls.dataset_dir}/{cls.image_dir}" in row
        assert TEMPLATES.get(cls.__name__, DEFAULT_TEMPLATE) in row
        assert cls.sizes
        assert all(f"{size:,}" in row for size in cls.sizes if size)
        assert getattr(cls, "split_id", "") in "".join(split)
