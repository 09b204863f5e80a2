"""Runs that are killed at any moment and started again end as if nothing had happened.

``python -m pytest tests/faults --kills 100`` kills a hundred times; the default is short.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp import cli
from coop_cmp.clip import add_models
from tests.conftest import FOLDER, SHORT

METHOD = ("--trainer", "CoOp_CMP", "--backbone", "TinyCLIP", "--seed", "1", *FOLDER)
SIZE = ("INPUT.SIZE", "(32, 32)", "TRAINER.COOP.PREC", "fp32", "DATALOADER.NUM_WORKERS", "0")
OPTIONS = (*SHORT[2:], *SIZE, "TRAIN.CHECKPOINT_FREQ", "1", "OPTIM.MAX_EPOCH", "8")


FRESH = multiprocessing.get_context("forkserver")
"""Forks of a process that has loaded what they need, and nothing of what other tests left here."""
FRESH.set_forkserver_preload([__name__])


def start(models: Path, data: Path, out: Path) -> ForkServerProcess:
    """Run train.py in a process of its own."""
    words = ["train", *METHOD, "--root", str(data), "--output-dir", str(out), *OPTIONS]
    child = FRESH.Process(target=train, args=(models, words))
    child.start()
    return child


def train(models: Path, words: list[str]) -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end
    add_models(models)
    sys.exit(cli.main(words))


def outcome(out: Path) -> dict[str, Any]:
    """What must not depend on how often a run was killed."""
    record = json.loads((out / "results.json").read_text())
    with np.load(out / "predictions.npz") as file:
        arrays = {name: file[name].tobytes() for name in ("logits", "labels")}
    return {**arrays, "metrics": record["metrics"], "sizes": record["sizes"]}


def test_killed_runs_end_as_undisturbed_ones(kills, tiny_weights, pictures, tmp_path):
    draw, models = random.Random(0), tiny_weights.parent
    undisturbed = tmp_path / "undisturbed"
    begin = time.monotonic()
    child = start(models, pictures, undisturbed)
    child.join()
    assert child.exitcode == 0
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
            child.join()
            if child.exitcode == 0:  # it was faster than the signal, or the last one
                break
            assert child.exitcode == -signal.SIGKILL
            done += 1
        assert outcome(out) == expected
        assert not list(out.rglob("*.tmp"))
