"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from yacs.config import CfgNode

from . import toy


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the toy data set."""
    root = tmp_path_factory.mktemp("toy")
    toy.write_images(root)
    return root


@pytest.fixture
def make_cfg(images: Path, tmp_path: Path) -> Callable[..., CfgNode]:
    """Makes the toy settings; options are keys and values."""
    return lambda *options: toy.config(images, tmp_path / "out", *options)
