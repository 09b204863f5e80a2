"""A folder with a small train.py and configs for sweeps, and programs that are others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import coop_cmp.datasets
import coop_cmp.trainers  # noqa: F401 - declares them
from coop_cmp import CONFIGS
from tests.sweep.fake import FAKE_TRAIN, behave


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(FAKE_TRAIN)
    for name in ("digits", "digits_noise", "food101"):
        file = tmp_path / "configs/datasets" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"DATASET:\n  NAME: {name.capitalize()}\n")
    (tmp_path / "configs").mkdir(exist_ok=True)
    (tmp_path / "configs/models").symlink_to(CONFIGS / "models")
    for name in ("glyph", "clip"):
        file = tmp_path / "configs/trainers/CoOp" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    behave(tmp_path, {})
    return tmp_path


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Make a program of that name which does what a shell script says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def make(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return make
