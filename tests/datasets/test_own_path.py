"""A person's path through the documentation: a folder, a table, predictions, an export."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.blocks import blocks
from tests.conftest import ROOT
from tests.predict.test_export import by_snippet
from tests.shell import Shell


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Eight handwritten zeros, ones and twos, in class folders, and one image for later."""
    data = load_digits()
    for name, label in (("zero", 0), ("one", 1), ("two", 2)):
        folder = tmp_path / "my_images" / name
        folder.mkdir(parents=True)
        for i, pixels in enumerate(data.images[data.target == label][:8]):
            Image.fromarray((pixels * 15.9).astype("uint8")).save(folder / f"{i}.png")
    Image.fromarray((data.images[300] * 15.9).astype("uint8")).save(tmp_path / "new.png")
    return tmp_path


def test_from_a_folder_to_probabilities_with_open_clip_alone(digits, monkeypatch):
    shell = Shell(digits)
    (train,) = [b for b in blocks(ROOT / "docs/start.md", "bash") if "./cats 4" in b]
    line = next(line for line in train.splitlines() if "main.sh" in line)
    line = line.replace("./cats", "./my_images").replace("{}, a breed of cat", "digit {}")
    trainers = "CoOp CoOp_CMP"
    short = f"--options OPTIM.MAX_EPOCH=2 --seeds 1 --backbones GlyphCLIP --trainers {trainers}"
    shown = shell(f"{line} {short}")
    assert re.search(r"zero +zero +a photo of a digit zero\.", shown)
    table = [line.split("|")[1].strip() for line in shown.splitlines() if line.startswith("| CoOp")]
    assert table == trainers.split()
    run = "output/my_images/CoOp_CMP/GlyphCLIP_4shots_lambda0.01/seed1"
    rows = list(csv.DictReader(io.StringIO(shell(f"bash scripts/predict.sh {run} new.png --csv"))))
    shell(f"bash scripts/export.sh {run} digits.safetensors")
    left = by_snippet(digits / "new.png", digits, monkeypatch)
    exported = dict(zip(left["about"]["classnames"], left["probabilities"].tolist(), strict=True))
    assert len(rows) == 3
    for row in rows:
        assert exported[row["class"]] == pytest.approx(float(row["probability"]), abs=1e-5)
