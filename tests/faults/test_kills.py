"""Runs that are killed at any moment and started again end as if nothing had happened.

``python -m pytest tests/faults --kills 100`` kills a hundred times; the default is short.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import FOLDER, ROOT, SHORT

METHOD = ("--trainer", "CoOp_CMP", "--backbone", "TinyCLIP", "--seed", "1", *FOLDER)
SIZE = ("INPUT.SIZE", "(32, 32)", "TRAINER.COOP.PREC", "fp32", "DATALOADER.NUM_WORKERS", "0")
OPTIONS = (*SHORT[2:], *SIZE, "TRAIN.CHECKPOINT_FREQ", "1", "OPTIM.MAX_EPOCH", "8")


def start(models: Path, data: Path, out: Path) -> subprocess.Popen[str]:
    """Run train.py in a process of its own, once it has loaded what it needs."""
    words = ["train", *METHOD, "--root", str(data), "--output-dir", str(out), *OPTIONS]
    program = (
        "import os, sys; from coop_cmp import cli; from coop_cmp.cli import training\n"
        f"training.add_models({str(models)!r})\n"
        "print('loaded', flush=True)\n"
        "sys.stdout = open(os.devnull, 'w')\n"
        f"sys.exit(cli.main({words!r}))"
    )
    command = [sys.executable, "-c", program]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "loaded\n"
    return child


def outcome(out: Path) -> dict[str, Any]:
    """What must not depend on how often a run was killed."""
    record = json.loads((out / "results.json").read_text())
    with np.load(out / "predictions.npz") as file:
        arrays = {name: file[name].tobytes() for name in ("logits", "labels")}
    return {**arrays, "metrics": record["metrics"], "sizes": record["sizes"]}


def test_killed_runs_end_as_undisturbed_ones(request, tiny_weights, pictures, tmp_path):
    kills = request.config.getoption("--kills", 3)
    draw, models = random.Random(0), tiny_weights.parent
    undisturbed = tmp_path / "undisturbed"
    child = start(models, pictures, undisturbed)
    begin = time.monotonic()
    assert child.wait() == 0
    seconds = time.monotonic() - begin
    expected = outcome(undisturbed)
    done = 0
    while done < kills:
        out = tmp_path / "killed"
        shutil.rmtree(out, ignore_errors=True)
        while True:
            child = start(models, pictures, out)
            if done < kills:
                time.sleep(draw.uniform(0, seconds))
                child.kill()
            code = child.wait()
            if code == 0:  # it was faster than the signal, or the last one
                break
            assert code == -signal.SIGKILL
            done += 1
        assert outcome(out) == expected
        assert not list(out.rglob("*.tmp"))
