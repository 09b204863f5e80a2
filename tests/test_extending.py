"""The code of docs/extending.md, as it stands there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import coop_cmp.losses.names as names
from coop_cmp import TermScope
from coop_cmp.config import SETTINGS
from coop_cmp.metrics import calibration_report
from coop_cmp.metrics.records import METRICS
from coop_cmp.report.page.build import page_data
from coop_cmp.report.page.rows import rows_of
from coop_cmp.report.summary import summary
from coop_cmp.runs.frame import find_runs, load
from tests.blocks import blocks
from tests.commands import command
from tests.conftest import ROOT
from tests.datasets.trees import build, entries
from tests.made_runs import write_run

PAGE = ROOT / "docs/extending.md"
TRAINER, DATASET, TERM, ENTRIES, METRIC = blocks(PAGE, "python")


BOTH = """
import sys
from coop_cmp.__main__ import main as plugin
from coop_cmp.cli import main
sys.exit(main(["sweep", *sys.argv[1:]]) or plugin(["--list"]))
"""

BOUNDED = """
from coop_cmp.config import declare, integer

DEEPEST = 9
declare("TRAINER.BOUNDED", DEPTH=integer(1, "layers", low=1, high=DEEPEST))
"""


def test_a_trainer_is_one_file(tmp_path):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in ("datasets", "configs"):
        (checkout / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "train.py", checkout)
    for name in ("coop_cmp", "trainers"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "trainers/taskres.py").write_text(TRAINER)
    (checkout / "trainers/bounded.py").write_text(BOUNDED)
    output = tmp_path / "out"
    arguments = (
        "digits", "--shots", "1", "--seeds", "1", "--trainers", "TaskRes",
        "TaskRes_CMP", "--lambdas", "0.5", "--output", str(output), "--data",
        str(tmp_path / "data"), "--options", "OPTIM.MAX_EPOCH=3", "OPTIM.LR=0.05",
    )  # fmt: skip
    # Both commands in one process, as each takes seconds to load torch.
    command = [sys.executable, "-c", BOTH, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=checkout, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ["TaskRes", "TaskRes_CMP"] in [line.split()[:2] for line in done.stdout.splitlines()]
    runs = load(output)
    assert list(runs["trainer"]) == ["TaskRes", "TaskRes_CMP"]
    assert list(runs["TRAINER.TASKRES.SCALE"]) == [0.5, 0.5]
    assert set(runs["sizes.trainable"]) == {10 * 96}
    assert runs["nll"].nunique() == 2
    assert runs["pair"].nunique() == 1


def test_a_data_set_is_one_file(tmp_path):
    exec(DATASET, {})
    settings = yaml.safe_load(blocks(PAGE, "yaml")[0])["DATASET"]
    for colour in ("red", "blue"):
        (tmp_path / "colours/images" / colour).mkdir(parents=True)
        for i in (1, 2):
            Image.new("RGB", (4, 4), colour).save(tmp_path / f"colours/images/{colour}/{i}.png")
    dataset = build(settings["NAME"], tmp_path, NUM_SHOTS=1, TEMPLATE=settings["TEMPLATE"])
    assert dataset.classnames == ["red", "blue"]
    assert entries(dataset.test, tmp_path / "colours/images") == [
        ("red/2.png", 0, "red"),
        ("blue/2.png", 1, "blue"),
    ]


def test_a_term_is_one_file_and_two_entries(monkeypatch):
    module = ModuleType("coop_cmp.losses.norm")
    exec(TERM, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("coop_cmp.losses.__all__", ["norm_loss"])
    monkeypatch.setitem(names.TERMS, "Norm", None)  # as it was afterwards
    before = set(SETTINGS)
    try:
        exec(ENTRIES, vars(names))
        logits, labels = torch.tensor([[3.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1])
        plain = torch.nn.functional.cross_entropy(logits, labels)
        with TermScope("Norm", 0.1, free=1.0):
            total = torch.nn.functional.cross_entropy(logits, labels)
        # ||z||^2 / C is 5 and 0.5; 1 is free.
        assert float(total - plain) == pytest.approx(0.1 * (5 - 1) / 2)
        assert names.split_trainer("CoOp_Norm") == ("CoOp", "Norm")
    finally:
        for key in set(SETTINGS) - before:
            del SETTINGS[key]


def test_a_term_and_a_metric_of_ones_own_break_no_test(tmp_path):
    """In a copy, as the page says; the tests that go through all terms and metrics run there."""
    for name in ("tests", "trainers", "datasets", "configs", "docs", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    library = tmp_path / "coop_cmp"
    shutil.copytree(ROOT / "coop_cmp", library, ignore=shutil.ignore_patterns("__pycache__"))
    (library / "losses/norm.py").write_text(TERM)
    for file, added in (("losses/names.py", ENTRIES), ("metrics/records.py", METRIC)):
        code = "\n".join(line for line in added.splitlines() if not line.startswith("from "))
        with (library / file).open("a") as records:
            records.write(f"\n\n{code}\n")
    files = (
        "tests/losses/test_terms.py",
        "tests/losses/test_names.py",
        "tests/metrics/test_metrics.py",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *files],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "test_every_precision_is_computed_in_single[dtype0-Norm]" in done.stdout


def test_a_metric_is_one_record(monkeypatch, tmp_path, capsys):
    probs = np.array([[0.95, 0.05], [0.95, 0.05], [0.6, 0.4], [0.3, 0.7]])
    labels = np.array([1, 0, 1, 1])
    for seed in (1, 2):
        for trainer in ("CoOp", "CoOp_CMP"):
            settings = {"TRAINER.NAME": trainer, "SEED": seed}
            write_run(tmp_path / f"{trainer}{seed}", settings, np.log(probs), labels, "ab")
    monkeypatch.setitem(METRICS, "overconfident", METRICS["ece"])
    exec(METRIC, {})
    report = calibration_report(probs, labels, keys=["overconfident"])
    assert report == {"overconfident": 0.25}
    frame = load(tmp_path)
    assert frame["overconfident"].tolist() == [0.25] * 4, "of runs that were made before"
    text = summary(frame)
    assert "| overconfident" in text
    assert "25.00 ± 0.00" in text
    rows = rows_of(find_runs(tmp_path)[0])
    assert rows[0].values["overconfident"].estimate == 0.25
    assert rows[0].values["overconfident"].low < 0.25
    assert rows[1].changes["overconfident"].high == 0
    data = page_data(rows, [], "")
    assert data["metrics"]["overconfident"]["better"] == -1
    assert command("metrics")([str(tmp_path / "CoOp1"), "--keys", "overconfident"]) == 0
    assert "25.00%" in capsys.readouterr().out
