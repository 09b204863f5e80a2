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
SIZE = ("INPUT.SIZE", "(32, 32)", "TRAINER.COOP.PREC", "fp32")
OPTIONS = (*SHORT[2:], *SIZE, "TRAIN.CHECKPOINT_FREQ", "1")

FRESH = multiprocessing.get_context("forkserver")
"""Forks of a process that has loaded what they need, and nothing of what other tests left here."""
FRESH.set_forkserver_preload([__name__])


def start(
    models: Path, data: Path, out: Path, epochs: int = 8, loaders: int = 0
) -> ForkServerProcess:
    """Run train.py in a process of its own, and as the leader of a group."""
    words = ["train", *METHOD, "--root", str(data), "--output-dir", str(out), *OPTIONS]
    words += ["OPTIM.MAX_EPOCH", str(epochs), "DATALOADER.NUM_WORKERS", str(loaders)]
    child = FRESH.Process(target=train, args=(models, words, out.with_suffix(".log")))
    child.start()
    return child


def train(models: Path, words: list[str], log: Path) -> None:
    os.setsid()
    # Tests that run in the background may have inherited an ignored Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout = sys.stderr = log.open("w", buffering=1)
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
    for name in ("first", "undisturbed"):  # the first waits for the server, too
        begin = time.monotonic()
        child = start(models, pictures, tmp_path / name)
        child.join()
        assert child.exitcode == 0
    seconds = time.monotonic() - begin
    expected = outcome(tmp_path / "undisturbed")
    assert outcome(tmp_path / "first") == expected
    out, done = tmp_path / "killed", 0
    while done < kills:
        shutil.rmtree(out, ignore_errors=True)
        while True:
            child = start(models, pictures, out)
            if done < kills:
                child.join(draw.uniform(0, seconds))
                child.kill()
            child.join()
            if child.exitcode == 0:  # it was faster than the signal, or the last one
                break
            assert child.exitcode == -signal.SIGKILL
            done += 1
        assert outcome(out) == expected
        assert not list(out.rglob("*.tmp"))


def test_ctrl_c_ends_a_training_in_a_line(tiny_weights, pictures, tmp_path):
    child = start(tiny_weights.parent, pictures, tmp_path / "out", epochs=100_000, loaders=2)
    log = tmp_path / "out.log"
    while not (log.exists() and "epoch [" in log.read_text()):
        assert child.exitcode is None
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)
    child.join(60)
    assert child.exitcode == 130
    assert log.read_text().endswith("\ninterrupted; the same command resumes\n")
