"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from yacs.config import CfgNode

from . import toy


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
