"""coop_cmp/sweep/progress.py, timing.py and the summary: what people see."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import datasets  # noqa: F401 - registers them
from coop_cmp.report.summary import percent, summary
from coop_cmp.sweep.__main__ import main
from coop_cmp.sweep.grid import Grid, Run
from coop_cmp.sweep.process import Attempt
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.timing import Estimator, duration
from tests.sweep.conftest import arguments, behave, calls


def test_a_dry_run_lists_what_is_done_and_estimates_the_rest(root, capsys):
    main(arguments(root, "--seeds", "1"))
    capsys.readouterr()
    assert main(arguments(root, "--dry-run", "--jobs", "1")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["done", "open", "open", "3"]
    assert lines[-1] == "3 runs, 2 to do; time: 4 s"
    assert len(calls(root)) == 1


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["--dry-run"], ["a.yaml", "b.yaml"], ["digits", "a.yaml"]]
)
def test_the_sweep_script_says_how_it_is_used(words):
    script = Path(__file__).parents[2] / "scripts/sweep.sh"
    end = subprocess.run(["bash", script, *words], capture_output=True, text=True, check=False)
    assert (end.returncode, end.stderr[:31]) == (2, "usage: bash scripts/sweep.sh <d")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_each_run_with_its_epoch_and_the_count(root, monkeypatch):
    behave(root, {1: ["slow"], 2: ["crash"]})
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(arguments(root, "--seeds", "1", "2")) == 1
    monkeypatch.undo()
    shown = [line.strip() for line in re.split(r"[\r\n]|\x1b\[A", terminal.getvalue())]
    run = "digits/CoOp/GlyphCLIP_8shots/seed"
    assert any(line.startswith(f"{run}1  epoch 1/2  ") for line in shown)
    assert any(line.startswith("0/2 runs |") for line in shown)
    assert any(line.startswith("1/2 runs |") for line in shown)
    assert any(line.startswith(f"done   {run}1: accuracy 51.0%, ECE 25.5%, ") for line in shown)
    assert any(line.startswith(f"FAILED {run}2: ended with exit code 1") for line in shown)
    assert not any(line.startswith("start  ") for line in shown), "the run's own line says so"


def running_since(seconds: float, run: Run) -> Attempt:
    """A run that was started so long ago; nobody will ask after its lock and process."""
    return Attempt(run, None, None, Path("log"), started=time.monotonic() - seconds)  # type: ignore[arg-type]


def test_times_are_estimated_from_the_most_similar_runs():
    estimator = Estimator()
    run = Run("digits", "CoOp", "GlyphCLIP", 8)
    assert estimator.expect(run) is None
    assert estimator.total([run], 1) is None
    estimator.add(run, 10.0)
    estimator.add(Run("digits", "CoOp", "GlyphCLIP", 1), 2.0)
    assert estimator.expect(Run("digits", "CoOp_CMP", "GlyphCLIP", 8, 3, 0.5)) == 10.0
    assert estimator.expect(Run("digits", "CoOp", "GlyphCLIP", 4)) == 6.0
    assert estimator.total([run] * 6, 2) == 30.0
    assert estimator.total([run], 8) == 10.0, "one run is not done eight at a time"
    left = Progress(2, 1, 8, estimator).time_left([run], {0: running_since(4.0, run)})
    assert left == ", about 6 s left"
    evaluation = Run("digits_blur", "CoOp", "GlyphCLIP", 8, source="digits")
    assert estimator.expect(evaluation) is None
    estimator.add(Run("digits", "ZeroshotCLIP", "GlyphCLIP"), 1.0)
    assert estimator.expect(evaluation) == 1.0
    assert estimator.expect(Run("digits", "MaPLe", "GlyphCLIP", 8)) == 6.0
    assert [duration(s) for s in (5, 60, 75, 3900, 90000)] == [
        "5 s", "1 min", "1 min 15 s", "1 h 5 min", "1 d 1 h",
    ]  # fmt: skip


def test_one_seed_has_no_deviation_and_varying_settings_get_a_column():
    assert percent([0.5]) == "50.00"
    assert percent([0.5, 0.52]) == "51.00 ± 1.41"
    metrics = {"metrics": {"accuracy": 0.5, "ece": 0.1, "ace": 0.1, "mce": 0.2}}
    runs = Grid(("digits",), ("CoOp",), shots=(1, 2), seeds=(1,)).runs()
    header = summary([(run, metrics) for run in runs]).splitlines()[0]
    names = [name.strip() for name in header.strip("|").split("|")]
    assert names == ["trainer", "shots", "seeds", "accuracy", "ECE", "ACE", "MCE"]
