"""A tiny CLIP with random weights, and runs of train.py on the embedded data set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from coop_cmp.clip import LoadedCLIP, add_models, load_clip

ROOT = Path(__file__).parents[1]
TINY = {
    "embed_dim": 32,
    "vision_cfg": {
        "image_size": 32,
        "patch_size": 16,
        "width": 64,
        "layers": 2,
        "head_width": 32,
    },
    "text_cfg": {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 32,
        "heads": 2,
        "layers": 3,
    },
}


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the feature store of the tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of TinyCLIP's random weights; its config is registered beside it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "TinyCLIP.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(folder / "TinyCLIP.json")
    torch.manual_seed(0)
    model = open_clip.create_model("TinyCLIP")
    weights = folder / "TinyCLIP.safetensors"
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, weights)
    add_models(folder)
    return weights


@pytest.fixture
def tiny_clip(tiny_weights: Path) -> LoadedCLIP:
    """A freshly loaded TinyCLIP."""
    return load_clip("TinyCLIP")
