"""Every command and every Python block of README and docs, run on the embedded data.

What is not run here stands below with the reason; tests/test_docs.py parses it and checks its
options.
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY, TrainerX
from PIL import Image
from scipy.special import softmax
from sklearn.datasets import load_digits

from coop_cmp.config import METHODS, SETTINGS
from coop_cmp.runs import load, read_predictions
from tests.blocks import PAGES, blocks
from tests.shell import Shell

COOP = Path("output/digits/CoOp/GlyphCLIP_8shots/seed1")
TWIN = Path("output/digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.01/seed1")
SWEEP = "--options OPTIM.MAX_EPOCH=1 --seeds 1"
TRAIN = "OPTIM.MAX_EPOCH 1"

# Commands by how they begin, and what is added so that they take seconds.
RUN = {
    "bash scripts/main.sh digits 8": SWEEP,
    "bash scripts/main.sh glyphs 1": SWEEP,
    "coop-cmp sweep digits --shots 8": SWEEP,
    "bash scripts/report.sh output": "",
    "bash scripts/figures.sh output": "--formats svg",
    "bash scripts/lambda.sh digits 8 --dry-run": "",
    "bash scripts/base2new.sh digits 8 --dry-run": "",
    "bash scripts/transfer.sh imagenet 8 --dry-run": "--data /data",
    "python train.py --trainer CoOp_CMP --dataset-config-file configs/datasets/digits.yaml": TRAIN,
    "python train.py --trainer BPEFT": TRAIN,
    "coop-cmp metrics": "--resamples 20",
    "coop-cmp calibrate": "",
    "python -m coop_cmp --list": "",
    "bash scripts/sweep.sh digits --dry-run": "",
    "bash scripts/datasets.sh check --data": "",
    "bash scripts/tables.sh list": "",
    "bash scripts/tables.sh run domain_calibration_metrics --dry-run": "",
    "bash scripts/tables.sh show": "",
    "bash scripts/predict.sh": "",
    "bash scripts/export.sh": "",
}
PARSED = {
    "bash scripts/test.sh": "runs the tests themselves",
    "pip install": "installs",
    "cd CoOp": "a checkout of others: tests/checkout/test_plugin.py",
    "python -m coop_cmp --check": "a checkout of others: tests/checkout/test_check.py",
    "python -m coop_cmp --trainer": "a checkout of others: tests/checkout/test_plugin.py",
    "python -m coop_cmp --fast": "a checkout of others: tests/checkout/test_fast.py",
    ". .venv/bin/activate": "an environment that there may not be",
    "bash scripts/main.sh oxford_pets 8": "needs CLIP's weights and a data set",
    "python train.py --trainer CoOp_MbLS ...": "not whole",
    "python train.py --trainer CTPT": "64 views of 899 images: tests/trainers/test_tpt.py",
    "bash scripts/tables.sh run all --slurm": "needs Slurm: tests/slurm",
    "bash scripts/tables.sh run domain_calibration_metrics": "needs weights and data; hours",
    "bash scripts/lambda.sh": "260 runs: tests/cli/test_protocols.py",
    "bash scripts/tables.sh embedded": "over a thousand runs: tests/report/test_tables.py",
    "parallel": "another program",
    "bash scripts/sweep.sh digits": "31 runs: tests/sweep",
    "bash scripts/datasets.sh check": "needs data sets: tests/datasets/test_tools.py",
    "coop-cmp models": "all of open_clip: tests/clip/test_models.py",
    "coop-cmp train": "needs weights: tests/predict/test_towers.py",
    "bash scripts/main.sh digits 4 --trainers": "the same with other trainers",
    "bash scripts/sweep.sh grid.yaml": "needs weights and data; the grid is tried below",
    "bash scripts/main.sh ./my_images": "tests/datasets/test_own_path.py",
    "bash scripts/main.sh ./cats": "tests/datasets/test_own_path.py",
    "bash scripts/main.sh digits 8 --trainers TaskRes TaskRes_CMP": "tests/test_extending.py",
    "bash scripts/validate.sh": "needs weights and data: tests/cli/test_validate.py",
}
ELSEWHERE = {
    "extending.md": "tests/test_extending.py",
    "features = torch.export.load": "one line of MaPLe's: tests/predict/test_export.py",
}


def lines_of(block: str) -> list[str]:
    """The commands of a block without comments, blanks made one."""
    lines = re.sub(r"\\\n", " ", block).splitlines()
    plain = (re.sub(r"(^|\s)#.*", "", line) for line in lines)
    return [" ".join(line.split()) for line in plain if line.strip()]


LINES = [line for page in PAGES for block in blocks(page, "bash") for line in lines_of(block)]
PYTHON = [
    (page.name, block)
    for page in PAGES
    for block in blocks(page, "python")
    if page.name not in ELSEWHERE and not block.startswith(tuple(ELSEWHERE))
]


def addition(line: str) -> str | None:
    """What is added to a line that is run; None for one that is not."""
    fitting = max((key for key in (*RUN, *PARSED) if line.startswith(key)), key=len, default=None)
    assert fitting, f"run it, or say why not: {line}"
    return RUN.get(fitting)


RUN_LINES = [line for line in dict.fromkeys(LINES) if addition(line) is not None]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A checkout in which the README's first command has been given, and files that pages name."""
    shell = Shell(tmp_path_factory.mktemp("checkout"))
    folder = shell.folder
    shell(f"bash scripts/main.sh digits 8 --validate {SWEEP}")
    shell(f"bash scripts/export.sh {TWIN} digits.safetensors")
    shutil.copytree(folder / TWIN, folder / "out")
    for run, name in ((COOP, "baseline.npz"), (TWIN, "cmp.npz"), (TWIN, "predictions.npz")):
        shutil.copy(folder / run / "predictions.npz", folder / name)
    stored = read_predictions(folder / "predictions.npz")
    with open(folder / "other.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["label", *stored.classnames])
        probabilities = softmax(stored.logits.astype(np.float64), axis=1)
        rows.writerows([y, *p] for y, p in zip(stored.labels, probabilities, strict=True))
    (folder / "new_images").mkdir()
    for path in ("new.png", "new_images/1.png"):
        Image.fromarray((load_digits().images[7] * 15).astype(np.uint8)).save(folder / path)
    return shell


def test_there_is_no_reason_without_a_line():
    for key in (*RUN, *PARSED):
        assert any(line.startswith(key) for line in LINES), key


@pytest.mark.parametrize("line", RUN_LINES)
def test_commands_run_as_they_stand(line, shell):
    if "--output-dir out" in line:  # which pages name for several runs
        shutil.rmtree(shell.folder / "out", ignore_errors=True)
    shell(f"{line} {addition(line)}")


def test_the_grid_of_a_sweep_is_one(shell):
    (grid,) = [b for page in PAGES for b in blocks(page, "yaml") if b.startswith("datasets:")]
    (shell.folder / "grid.yaml").write_text(grid)
    shown = shell("bash scripts/sweep.sh grid.yaml --dry-run --data /data")
    # 2 data sets, 3 shots and 3 seeds of CoOp and of its twin with 2 weights in 2 forms, each
    # tested in 3 places; and zero-shot CLIP on 3 data sets.
    assert f"{2 * 3 * 3 * (1 + 2 * 2) * 3 + 3} runs" in shown


class MyTrainer(TrainerX):
    """Somebody's trainer."""


@pytest.fixture
def known(shell, monkeypatch) -> Iterator[dict[str, Any]]:
    """What the pages' Python takes for granted; what it registers is forgotten afterwards."""
    monkeypatch.chdir(shell.folder)
    stored, twin = read_predictions("baseline.npz"), read_predictions("cmp.npz")
    logits, labels = torch.tensor(stored.logits).requires_grad_(), torch.tensor(stored.labels)
    with ExitStack() as stack:
        for registry in (SETTINGS, METHODS, TRAINER_REGISTRY._obj_map):
            stack.enter_context(patch.dict(registry))
        yield {
            "torch": torch,
            "numpy": np,
            "F": F,
            "logits": logits,
            "logits_cmp": torch.tensor(twin.logits),
            "labels": labels,
            "probs": logits.detach().softmax(1),
            "z0": logits.detach(),
            "images": logits,
            "criterion": torch.nn.CrossEntropyLoss(),
            "model_that_returns_its_loss": F.cross_entropy,
            "MyTrainer": MyTrainer,
            "frame": (frame := load("output")),
            "pairs_of_runs": [pair_of(frame)],
        }


def pair_of(frame: pd.DataFrame) -> tuple[Any, Any]:
    """The indices of the twin's test and of its baseline's."""
    tests = frame[frame["split"] == "test"]
    twin, plain = (tests.index[tests["trainer"] == name] for name in ("CoOp_CMP", "CoOp"))
    return twin[0], plain[0]


@pytest.mark.parametrize("block", [block for _, block in PYTHON], ids=[name for name, _ in PYTHON])
def test_python_runs_as_it_stands(block, known):
    exec(block.replace("    ...\n", "    F.cross_entropy(logits, labels)\n"), known)
