"""A tiny CLIP with random weights, and runs of train.py on the embedded data set."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import coop_cmp.trainers  # noqa: F401 - declares the methods
from coop_cmp import cli
from coop_cmp.clip import LoadedCLIP, load_clip
from coop_cmp.config.preprocessing import CLIPS
from coop_cmp.runs.project import Project
from tests.small_clip import described, register, vit

ROOT = Path(__file__).parents[1]
FOLDER = ("--dataset-config-file", str(ROOT / "configs/datasets/folder.yaml"))
SHORT = ("OPTIM.MAX_EPOCH", "3", "DATALOADER.TEST.BATCH_SIZE", "5", "DATASET.NUM_SHOTS", "2")
TINY_RUN = (  # what is not in a method's file, since it follows from the backbone
    "MODEL.BACKBONE.NAME", "TinyCLIP", "INPUT.SIZE", "(32, 32)", "INPUT.INTERPOLATION", "bicubic",
    "INPUT.PIXEL_MEAN", str(CLIPS["INPUT.PIXEL_MEAN"]), "INPUT.PIXEL_STD",
    str(CLIPS["INPUT.PIXEL_STD"]), "DATALOADER.NUM_WORKERS", "0",
)  # fmt: skip
# Files whose few tests take long. They come first: a worker would be left with them at the end.
LONG = (
    "slurm/test_sweep.py",
    "test_tutorial.py",
    "test_extending.py",
    "sweep/test_launcher.py",
    "test_docs_run.py",
    "cli/test_install.py",
)
TINY = described(vit(32, 16, 64, 2, 32), layers=3)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        default="cpu",
        help="cpu (default): all tests, on the CPU alone; cuda or mps: those that compare devices",
    )


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # small models; and threads do not survive in the forks of tests
    if config.getoption("--device") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        torch.backends.mps.is_available = lambda: False  # type: ignore[assignment]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))
    if config.getoption("--device") == "cpu":
        return
    wanted = [item for item in items if "device" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


@pytest.fixture
def device(request: pytest.FixtureRequest) -> str:
    """The device to test: whoever asks for it also runs on a GPU."""
    return request.config.getoption("--device")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the feature store of the tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of TinyCLIP's random weights; its config is registered beside it."""
    return register(tmp_path_factory.mktemp("models"), "TinyCLIP", TINY, seed=0)


@pytest.fixture
def tiny_clip(tiny_weights: Path) -> LoadedCLIP:
    """A freshly loaded TinyCLIP."""
    return load_clip("TinyCLIP")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty place for output."""
    return Project(tmp_path)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Random pictures of three classes: of each 2 for training, 1 for validation, 4 for tests."""
    draw = np.random.default_rng(0)
    for part, count in (("train", 2), ("val", 1), ("test", 4)):
        for name in ("cat", "dog", "tree"):
            folder = tmp_path / "data" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 256, (40, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "data"


@pytest.fixture
def run(tiny_weights, pictures, tmp_path, monkeypatch, capsys):
    """Run train.py with a store below tmp_path: its logits [N, C] and what it printed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run_once(name: str, *options: str, trainer: str = "CoOp_CMP", code: int = 0) -> Any:
        method = trainer.removesuffix("_CMP").replace("ZeroshotCLIP", "CoOp")
        config = str(ROOT / f"configs/trainers/{method}/glyph.yaml")
        arguments = ["--root", str(pictures), *FOLDER, "--config-file", config]
        arguments += ["--trainer", trainer, "--output-dir", str(tmp_path / name)]
        flags = [option for option in options if option.startswith("--")]
        settings = ["SEED", "1", *TINY_RUN, *SHORT]
        if not method.endswith("TPT"):  # whose files have random views
            settings += ["INPUT.TRANSFORMS", "['normalize']"]
        settings += [option for option in options if not option.startswith("--")]
        last = dict(zip(settings[::2], settings[1::2], strict=True))
        chosen = [word for pair in last.items() for word in pair]
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", sys.stdout)  # the logger replaces it
            assert cli.main(["train", *arguments, *flags, *chosen]) == code
        output = capsys.readouterr()
        if code:
            return output.err
        return np.load(tmp_path / name / "predictions.npz")["logits"], output.out

    return run_once
