"""coop_cmp/sweep/launcher.py and process.py: every run once, whatever happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

import coop_cmp.datasets  # noqa: F401 - registers them
from coop_cmp.runs.run import Run
from coop_cmp.sweep.lock import RunLock
from tests.sweep.fake import (
    StartedSweep,
    arguments,
    behave,
    calls,
    main,
    project_of,
    wait_until,
)


def test_a_sweep_runs_each_run_once_and_ends_with_means_and_deviations(root, capsys):
    more = ("--trainers", "ZeroshotCLIP", "CoOp", "CoOp_CMP")
    assert main(arguments(root, *more)) == 0
    assert len(calls(root)) == 7
    table = capsys.readouterr().out
    # accuracies 0.51 .. 0.53, and 0.61 .. 0.63 for the twin: deviation exactly 1 point
    assert "| CoOp         | -        | 1, 2, 3 | 52.00 ± 1.00 | 26.00 ± 0.50 |" in table
    assert "| CoOp_CMP     | 0.01     | 1, 2, 3 | 62.00 ± 1.00 |" in table
    assert "| ZeroshotCLIP | -        | -       | 51.00        |" in table
    assert main(arguments(root, *more)) == 0
    assert len(calls(root)) == 7, "complete runs are skipped"
    second = capsys.readouterr().out
    assert second[second.index("| trainer") :] == table[table.index("| trainer") :]


def test_evaluations_wait_for_their_training(root):
    assert main(arguments(root, "--targets", "digits_noise", "--seeds", "1", "2")) == 0
    assert "digits_noise/CoOp/GlyphCLIP_8shots_from_digits/seed2" in calls(root)


@pytest.mark.parametrize("fork", [False, True], ids=["process", "fork"])
def test_failures_are_retried_once_and_listed_while_the_others_go_on(root, capsys, fork):
    behave(root, {1: ["crash"], 2: ["die", "good"], 4: ["crash"], 5: ["user error"]})
    flags = ("--seeds", "1", "2", "3", "4", "5", "--fork" if fork else "--no-fork")
    assert main(arguments(root, *flags)) == 1
    made = [path[-1] for path in calls(root)]
    assert made == ["1", "1", "2", "2", "3", "4", "4", "5"], "a user's mistake is not repeated"
    out, err = capsys.readouterr()
    assert "again  digits/CoOp/GlyphCLIP_8shots/seed2: killed by SIGKILL" in out
    assert "3 of the runs failed" in err
    assert re.search("seed[14]: ended with exit code 1", err)
    assert err.count("RuntimeError: the loss exploded") == 1
    assert "and 1 more for the same reason" in err
    assert "seed5: ended with exit code 2" in err
    assert "| CoOp      | 2, 3    |" in out


def test_forked_runs_see_the_same_environment_and_leave_no_trace_in_the_sweep(root):
    before = dict(os.environ), list(sys.argv), os.getcwd()
    assert main(arguments(root, "--fork", "--seeds", "1", "--threads", "1")) == 0
    log = root / "output/digits/CoOp/GlyphCLIP_8shots/seed1/sweep.log"
    assert "epoch [1/2] of good threads 1" in log.read_text()
    assert before == (dict(os.environ), list(sys.argv), os.getcwd())


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("garbage", "results.json"),
        ("nothing", "left no results.json"),
    ],
)
def test_a_run_without_results_to_trust_is_reported_and_stays_out_of_the_table(
    root, capsys, step, reason
):
    behave(root, {1: [step]})
    assert main(arguments(root, "--seeds", "1", "2")) == 1
    out, err = capsys.readouterr()
    assert reason in err
    assert "| CoOp      | 2       |" in out


def test_a_run_past_its_time_limit_is_ended(root, capsys):
    behave(root, {1: ["hang"]})
    assert main(arguments(root, "--seeds", "1", "2", "--time-limit", "0.15")) == 1
    assert "ended at its time limit of 9 s" in capsys.readouterr().err
    assert "digits/CoOp/GlyphCLIP_8shots/seed2" in calls(root)


def test_results_of_a_run_that_failed_after_writing_them_stay_out_of_the_table(root, capsys):
    behave(root, {1: ["late crash"], 2: ["late hang"], 3: ["late crash", "good"]})
    assert main(arguments(root, "--time-limit", "0.15")) == 1
    out, err = capsys.readouterr()
    assert "seed1: ended with exit code 1" in err
    assert "seed2: ended at its time limit" in err
    assert "| CoOp      | 3       |" in out
    project = project_of(root)
    for seed, kind in ((1, "open"), (2, "open"), (3, "done")):
        run = Run("digits", "CoOp", "GlyphCLIP", 8, seed)
        assert project.state(run).kind == kind
        assert (project.directory(run) / "results.rejected.json").exists()


def test_two_sweeps_at_once_do_every_run_exactly_once(root):
    seeds = [str(seed) for seed in range(1, 7)]
    behave(root, {seed: ["slow"] for seed in range(1, 7)})
    sweeps = [StartedSweep(root, "--seeds", *seeds) for _ in range(2)]
    codes, outputs = zip(*(sweep.end() for sweep in sweeps), strict=True)
    assert codes == (0, 0)
    assert [path[-1] for path in calls(root)] == seeds
    tables = {output[output.index("| trainer") :] for output in outputs}
    assert len(tables) == 1


@pytest.mark.parametrize("fork", ["--no-fork", "--fork"])
def test_a_sweep_killed_outright_takes_its_runs_with_it_and_is_continued(root, fork):
    behave(root, {1: ["good"], 2: ["hang", "good"], 3: ["good"]})
    sweep = StartedSweep(root, "--jobs", "1", fork)
    wait_until(lambda: len(calls(root)) == 2)
    sweep.kill()
    sweep.end()
    assert main(arguments(root)) == 0
    assert [path[-1] for path in calls(root)] == ["1", "2", "2", "3"]


def test_a_run_that_outlives_its_sweep_keeps_its_lock(tmp_path):
    lock = RunLock.take(tmp_path)
    assert lock is not None
    with subprocess.Popen(["sleep", "60"], pass_fds=(lock.file.fileno(),)) as run:
        lock.file.close()
        assert RunLock.take(tmp_path) is None
        run.kill()
    again = RunLock.take(tmp_path)
    assert again is not None
    again.release()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_ends_its_runs_and_starts_again(root, number):
    behave(root, {1: ["hang", "good"]})
    sweep = StartedSweep(root, "--seeds", "1")
    wait_until(lambda: len(calls(root)) == 1)
    os.kill(sweep.pid, number)
    assert sweep.end()[0] == 130
    lock = RunLock.take(root / "output/digits/CoOp/GlyphCLIP_8shots/seed1")
    assert lock is not None, "nothing is left that holds the run"
    lock.release()
    assert main(arguments(root, "--seeds", "1")) == 0


@pytest.mark.parametrize("fork", ["--no-fork", "--fork"])
def test_a_sweep_under_nohup_and_its_runs_survive_the_end_of_the_terminal(root, fork):
    behave(root, {1: ["slow"]})
    sweep = StartedSweep(root, "--seeds", "1", fork, nohup=True)
    wait_until(lambda: len(calls(root)) == 1)
    os.killpg(sweep.pid, signal.SIGHUP)
    assert sweep.end()[0] == 0
    assert len(calls(root)) == 1, "the run went on and was not started again"


def attempts(root, seed):
    """The devices on which a run was tried, from its log."""
    log = (root / f"output/digits/CoOp/GlyphCLIP_8shots/seed{seed}/sweep.log").read_text()
    return re.findall(r"== attempt \d on (\S+)", log)


def test_a_failed_run_is_tried_again_on_another_device(root, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    behave(root, {1: ["crash on 0"], 2: ["slow"]})
    words = arguments(root, "--seeds", "1", "2", "--devices", "cuda:0", "cuda:1")
    assert main([*words, "--jobs", "1"]) == 1, "there is no other for a single job"
    assert attempts(root, 1) == ["cuda:0", "cuda:0"]
    assert main(words) == 0
    assert attempts(root, 1) == ["cuda:0", "cuda:0", "cuda:0", "cuda:1"]


def test_a_run_out_of_memory_is_repeated_alone_on_its_device(root, capsys):
    behave(root, {1: ["slow"], 2: ["memory"], 3: ["slow"], 4: ["slow"]})
    assert main(arguments(root, "--seeds", "1", "2", "3", "4", "--jobs", "2")) == 0
    out = capsys.readouterr().out
    assert "again  digits/CoOp/GlyphCLIP_8shots/seed2: ended with exit code 1, now alone" in out


def test_an_io_error_is_no_mistake_of_the_user(root, capsys):
    behave(root, {1: ["io error", "good"]})
    assert main(arguments(root, "--seeds", "1")) == 0
    assert "an input or output error of the system" in capsys.readouterr().out


def test_a_mistake_is_not_made_again_with_other_seeds(root, capsys):
    behave(root, {1: ["user error"], 2: ["user error"], 3: ["user error"]})
    assert main(arguments(root, "--trainers", "CoOp", "KgCoOp", "--jobs", "1")) == 1
    assert calls(root) == [
        "digits/CoOp/GlyphCLIP_8shots/seed1",
        "digits/KgCoOp/GlyphCLIP_8shots/seed1",
    ]
    err = capsys.readouterr().err
    assert err.count("error: no such folder") == 1
    assert "skipped: digits/CoOp/GlyphCLIP_8shots/seed1" in err


def test_a_mistake_in_a_data_set_ends_its_runs_at_once_and_no_others(root, capsys):
    behave(root, {1: ["data error on digits", "good"]})
    more = ("--trainers", "CoOp", "CoOp_CMP", "--shots", "8", "4", "--jobs", "1", "--seeds", "1")
    assert main(arguments(root, *more, datasets=("digits", "food101"))) == 1
    assert [call.split("/")[0] for call in calls(root)] == ["digits", *["food101"] * 4]
    assert "a mistake in the data set" in capsys.readouterr().err
