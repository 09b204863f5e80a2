"""coop_cmp/files.py: files are whole or not there, and errors name them."""

from __future__ import annotations

import errno
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coop_cmp import __version__
from coop_cmp.errors import one_line
from coop_cmp.files import atomic_write, is_running, remove_leftovers
from tests.conftest import ROOT


def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path, monkeypatch):
    target = tmp_path / "results.json"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught, atomic_write(target) as file:
        file.write(b"new")
    assert one_line(caught.value) == f"{target}: No space left on device"
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail() -> None:
        with atomic_write(str(path)) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(OSError, match="Not a directory") as caught,
        atomic_write(tmp_path / "file/a"),
    ):
        pass
    assert str(tmp_path / "file") in one_line(caught.value)


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    assert is_running(os.getpid())
    assert not is_running(dead.pid)
    host = platform.node()
    killed = tmp_path / f".a.json.{host}.{dead.pid}.tmp"
    others = [
        tmp_path / f".a.json.{host}.{os.getppid()}.tmp",  # of a process that lives
        tmp_path / f".a.json.elsewhere.{dead.pid}.tmp",
        tmp_path / f".b.json.{host}.{dead.pid}.tmp",
        tmp_path / f".a.json.{host}.mine.tmp",
    ]
    for path in (killed, *others):
        path.write_text("part")
    with atomic_write(tmp_path / "a.json") as file:
        file.write(b"whole")
    assert not killed.exists()
    assert all(path.exists() for path in others)
    remove_leftovers(tmp_path)
    assert [path.exists() for path in others] == [True, True, False, True]


def test_an_error_without_words_is_its_kind():
    assert one_line(ValueError("")) == "ValueError"


def test_train_without_the_environment_says_how_to_get_it():
    command = [sys.executable, "-E", "-S", str(ROOT / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert re.match("error: No module named '[a-z]+'; activate the environment", done.stderr)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH came with Python 3.11")
def test_scripts_import_nothing_from_the_folder_they_are_started_in(tmp_path: Path):
    names = ("yaml", "yacs", "torch", "coop_cmp", "datasets", "trainers")
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"open('{name} was run', 'w')")
    look = f"from importlib.util import find_spec; print(*map(find_spec, {names}), sep='\\n')"
    script = f'. "{ROOT}/scripts/env.sh" && "$PYTHON" -c "{look}" && coop_cmp --version'
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    *found, version = done.stdout.splitlines()
    assert version == __version__, done.stderr
    assert len(found) == len(names)
    assert str(tmp_path) not in done.stdout
    assert len(list(tmp_path.iterdir())) == len(names)
