"""What is installed: one package with everything in it, which works from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from coop_cmp import cli
from tests.conftest import ROOT

pytest.importorskip("setuptools", minversion="77")
SOURCES = ("coop_cmp", "trainers", "datasets", "configs")
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
USE = """
import sys
import coop_cmp
from coop_cmp.cli import main
sweep = "digits --trainers CoOp --shots 1 --seeds 1 --options OPTIM.MAX_EPOCH=1"
assert main(["sweep", *sweep.split()]) == 0
model = coop_cmp.load("output/digits/CoOp/GlyphCLIP_1shots/seed1")
assert len(model.classnames) == 10
assert not {"trainers", "datasets", "configs"} & set(sys.modules)
print(coop_cmp.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    copy = tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-c", BUILD, str(copy / "dist")]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = (copy / "dist").glob("*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_holds_every_source_below_one_name(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in names} == {"coop_cmp"}
    for source in SOURCES:
        files = (f for f in (ROOT / source).rglob("*") if f.is_file() and f.suffix != ".pyc")
        place = "coop_cmp" if source == "coop_cmp" else f"coop_cmp/{source}"
        expected = {f"{place}/{file.relative_to(ROOT / source).as_posix()}" for file in files}
        assert expected <= names
    (entries,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert b"coop-cmp = coop_cmp.cli:main" in wheel.read(entries)
    assert callable(cli.main)


def test_the_package_works_from_any_folder(wheel, tmp_path):
    wheel.extractall(tmp_path / "installed")
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path(done.stdout.splitlines()[-1]).is_relative_to(tmp_path / "installed")
