"""coop_cmp/sweep/progress.py, timing.py and the summary: what people see."""

from __future__ import annotations

import io
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import coop_cmp.datasets  # noqa: F401 - registers them
from coop_cmp.report.summary import mean_text, summary
from coop_cmp.runs.grid import Grid
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.sweep.process import Attempt, Trial
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.timing import Estimator, duration, kind_of
from tests.made_runs import finish, finish_with
from tests.sweep.fake import arguments, behave, calls, main


def test_a_dry_run_lists_what_is_done_and_estimates_the_rest(root, capsys):
    main(arguments(root, "--seeds", "1"))
    capsys.readouterr()
    assert main(arguments(root, "--dry-run", "--jobs", "1")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["done", "open", "open", "3"]
    assert lines[-1] == "3 runs, 2 to do; time: 4 s"
    assert len(calls(root)) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_live_line_with_epoch_and_count_below_the_events(root, monkeypatch):
    behave(root, {1: ["hang"], 2: ["good"], 3: ["crash"]})
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(arguments(root, "--time-limit", "0.05")) == 1
    monkeypatch.undo()
    run = "digits/CoOp/GlyphCLIP_8shots/seed"
    live = rf"\r\x1b\[Krunning {run}1  epoch 1/2  \d s (and 1 more )?\[\d/3"
    assert re.search(live, terminal.getvalue())
    shown = [line.rpartition("\x1b[K")[2] for line in terminal.getvalue().splitlines()]
    assert f"start  {run}1" in shown
    assert any(line.startswith(f"done   {run}2: accuracy 52.0%, ECE 26.0%, ") for line in shown)
    assert any(line.startswith(f"FAILED {run}3: ended with exit code 1") for line in shown)


def running_since(seconds: float, run: Run) -> Attempt:
    """A run that was started so long ago; nobody will ask after its lock and process."""
    started = time.monotonic() - seconds
    return Attempt(Trial(run), "cpu", None, None, Path("log"), started)  # type: ignore[arg-type]


def test_times_are_estimated_from_the_most_similar_runs():
    estimator = Estimator()
    run = Run("digits", "CoOp", "GlyphCLIP", 8)
    assert estimator.expect(kind_of(run)) is None
    assert estimator.total({kind_of(run): 1}, 1) is None
    estimator.add(run, 10.0)
    estimator.add(Run("digits", "CoOp", "GlyphCLIP", 1), 2.0)
    assert estimator.expect(kind_of(Run("digits", "CoOp_CMP", "GlyphCLIP", 8, 3, 0.5))) == 10.0
    assert estimator.expect(kind_of(Run("digits", "CoOp", "GlyphCLIP", 4))) == 6.0
    assert estimator.total({kind_of(run): 6}, 2) == 30.0
    assert estimator.total({kind_of(run): 1}, 8) == 10.0, "one run is not done eight at a time"
    progress = Progress(2, 1, 8, estimator)
    progress.begin([run])
    assert progress.time_left({0: running_since(4.0, run)}) == ", about 6 s left"
    progress.failed(run, "on purpose")
    assert progress.time_left({}) == ""
    evaluation = Run("digits_blur", "CoOp", "GlyphCLIP", 8, source="digits")
    assert estimator.expect(kind_of(evaluation)) is None
    estimator.add(Run("digits", "ZeroshotCLIP", "GlyphCLIP"), 1.0)
    assert estimator.expect(kind_of(evaluation)) == 1.0
    assert estimator.expect(kind_of(Run("digits", "MaPLe", "GlyphCLIP", 8))) == 6.0
    assert [duration(s) for s in (5, 60, 75, 3900, 90000)] == [
        "5 s", "1 min", "1 min 15 s", "1 h 5 min", "1 d 1 h",
    ]  # fmt: skip


def test_one_seed_has_no_deviation_and_varying_settings_get_a_column(tmp_path):
    assert mean_text([0.5]) == "50.00"
    assert mean_text([0.5, 0.52]) == "51.00 ± 1.41"
    assert mean_text([0.5, 0.52], "nll") == "0.510 ± 0.014"
    project = Project(tmp_path)
    runs = Grid(("digits",), ("CoOp",), shots=(1, 2), seeds=(1,)).runs()
    for run in runs:
        finish(project, run)
    header = summary(project.frame(runs)).splitlines()[0]
    names = [name.strip() for name in header.strip("|").split("|")]
    assert names == ["trainer", "shots", "seeds", "accuracy", "ECE", "ACE", "MCE", "NLL"]


def test_runs_with_other_options_get_a_row_of_their_own_that_says_so(tmp_path):
    project = Project(tmp_path)
    plain = Run("digits", "CoOp", "GlyphCLIP", 8)
    other = replace(plain, options=(("OPTIM.LR", "0.5"),), tag="fast")
    for seed in (1, 2):
        finish(project, replace(plain, seed=seed), accuracy=0.9)
        finish(project, replace(other, seed=seed), accuracy=0.1)
    runs = [replace(run, seed=seed) for run in (plain, other) for seed in (1, 2)]
    rows = summary(project.frame(runs)).splitlines()[2:4]
    assert "OPTIM.LR=0.003" in rows[0]
    assert "| 90.00 ± 0.00" in rows[0]
    assert "OPTIM.LR=0.5" in rows[1]
    assert "| 10.00 ± 0.00" in rows[1]


def test_the_change_by_the_penalty_has_an_interval(tmp_path):
    project = Project(tmp_path)
    rank = np.random.default_rng(0).permutation(400) / 400
    runs = Grid(("digits",), ("CoOp", "CoOp_CMP")).runs()
    for run in runs:
        rate = 0.8 if run.lam is None else 0.81 + run.seed / 100
        finish_with(project, run, np.full(400, 0.9), rank < rate, accuracy=rate, ece=0.9 - rate)
    line = summary(project.frame(runs)).splitlines()[4]
    assert line.startswith("| by CMP")
    assert re.search(r"\| \+3\.00 \(\+0\.\d\d to \+5\.\d\d\) \* +\| -3\.00 \(-5", line), line
