"""Sweeps, tested with a small train.py that writes results the way the real one does."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import yaml
from dassl.data.datasets import DATASET_REGISTRY

import datasets  # noqa: F401 - registers them
from coop_cmp.errors import UserError
from coop_cmp.report.summary import percent, summary
from coop_cmp.results import write_predictions
from coop_cmp.sweep import project as project_module
from coop_cmp.sweep.__main__ import main
from coop_cmp.sweep.devices import environment_for, visible_gpus
from coop_cmp.sweep.grid import Grid, Run, parse_grid, read_grids
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.process import Attempt, ForkedProcess, RunLock
from coop_cmp.sweep.progress import Progress
from coop_cmp.sweep.project import Project
from coop_cmp.sweep.selection import NO_VALIDATION, Candidate, choose, collect, describe
from coop_cmp.sweep.selection import main as select
from coop_cmp.sweep.slurm import group, launch, parameters
from coop_cmp.sweep.timing import Estimator, duration
from datasets.base import FewShotDataset

# Behaves as the file "behaviour.json" beside it says, by the run's seed: a list of what to do at
# each call, the last for all later calls. Adds a line to "calls.txt" per call.
FAKE_TRAIN = """
import argparse, json, os, signal, sys, time
from pathlib import Path

def main():
    parser = argparse.ArgumentParser()
    for name in ("trainer", "backbone", "dataset-config-file", "config-file", "output-dir",
                 "model-dir", "root", "device"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--eval-only", action="store_true")
    parser.add_argument("opts", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    opts = dict(zip(args.opts[::2], args.opts[1::2]))
    out, here = Path(args.output_dir), Path(__file__).parent
    with open(here / "calls.txt", "a") as file:
        file.write(f"{out}\\n")
    calls = (here / "calls.txt").read_text().splitlines().count(str(out))
    steps = json.loads((here / "behaviour.json").read_text()).get(str(args.seed), ["good"])
    step = steps[min(calls, len(steps)) - 1]
    print("epoch [1/2] of", step, "threads", os.environ.get("OMP_NUM_THREADS"),
          "on", args.device, "of", repr(os.environ.get("CUDA_VISIBLE_DEVICES")))
    if args.eval_only and not (Path(args.model_dir) / "results.json").exists():
        sys.exit("evaluated before it was trained")
    if step == "crash": raise RuntimeError("the loss exploded")
    if step == "user error": sys.exit(2)
    if step == "die": os.kill(os.getpid(), signal.SIGKILL)
    if step == "hang": time.sleep(60)
    if step == "slow": time.sleep(0.7)
    if step == "nothing": return
    twin = args.trainer.endswith("_CMP")
    accuracy = 0.5 + args.seed / 100 + 0.1 * twin + 0.01 * ("TEST.SPLIT" in opts)
    if step == "nan": accuracy = float("nan")
    names = ("accuracy", "ece", "ace", "mce", "weighted_mce", "nll")
    results = {
        "schema": 99 if step == "schema" else 1,
        "trainer": args.trainer, "backbone": args.backbone, "weights": "none",
        "dataset": Path(args.dataset_config_file).stem.capitalize(),
        "shots": int(opts.get("DATASET.NUM_SHOTS", -1)), "seed": args.seed, "subsample": "all",
        "lambda": float(opts["TRAINER.CMP.LAMBDA"]) if twin else None,
        "form": opts["TRAINER.CMP.FORM"] if twin else None,
        "split": opts.get("TEST.SPLIT", "test"),
        "metrics": {name: accuracy / (i + 1) for i, name in enumerate(names)},
        "bins": {"n_bins": 10, "closed": "right"},
        "sizes": {"classes": 10, "train": 80, "test": 40 if "TEST.SPLIT" in opts else 100,
                  "trainable": 1},
        "seconds": {"total": 2.0, "test": 1.0}, "versions": {}, "notes": [],
    }
    text = json.dumps(results)
    (out / "results.json").write_text(text[:40] if step == "garbage" else text)
    if step == "late crash": raise RuntimeError("the driver went away")
    if step == "late hang": time.sleep(60)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(FAKE_TRAIN)
    for name in ("digits", "digits_noise", "food101"):
        file = tmp_path / "configs/datasets" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"DATASET:\n  NAME: {name.capitalize()}\n")
    for name in ("glyph", "vit_b16", "rn50"):
        file = tmp_path / "configs/trainers/CoOp" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    behave(tmp_path, {})
    return tmp_path


def behave(root: Path, steps: dict[int, list[str]]) -> None:
    (root / "behaviour.json").write_text(json.dumps(steps))


def arguments(root: Path, *more: str) -> list[str]:
    words = ["--project", str(root), "--output", str(root / "output"), "--datasets", "digits"]
    return [*words, "--trainers", "CoOp", "--jobs", "2", "--no-fork", *more]


def calls(root: Path) -> list[str]:
    file = root / "calls.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return sorted(Path(line).relative_to(root / "output").as_posix() for line in lines)


def start_sweep(root: Path, *more: str, ignore: int | None = None) -> subprocess.Popen[str]:
    """A sweep in a process group of its own."""

    def set_signals() -> None:
        # Tests that run in the background may have inherited an ignored Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if ignore is not None:
            signal.signal(ignore, signal.SIG_IGN)

    command = [sys.executable, "-m", "coop_cmp.sweep", *arguments(root, *more)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=set_signals,
        start_new_session=True,
    )


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_grid_expands_into_every_combination_once_with_stable_directories():
    grid = Grid(
        datasets=("digits",),
        trainers=("ZeroshotCLIP", "CoOp", "CoOp_CMP"),
        shots=(4, 8),
        seeds=(1, 2),
        lambdas=(0.01, 0.5),
        forms=("ratio", "log"),
        targets=("digits_noise",),
    )
    paths = [str(run) for run in grid.runs()]
    # 1 zero-shot; 2 x 2 CoOp; 2 x 2 x 2 x 2 twins; each on two data sets
    assert len(paths) == len(set(paths)) == 2 * (1 + 4 + 16)
    assert "digits/ZeroshotCLIP/GlyphCLIP/seed1" in paths
    assert "digits/CoOp/GlyphCLIP_8shots/seed2" in paths
    assert "digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.5/seed1" in paths
    assert "digits/CoOp_CMP/GlyphCLIP_4shots_lambda0.01_log/seed1" in paths
    assert "digits_noise/CoOp/GlyphCLIP_8shots_from_digits/seed1" in paths
    assert "digits_noise/ZeroshotCLIP/GlyphCLIP/seed1" in paths


def test_a_slash_in_the_backbone_does_not_make_a_directory():
    run = Grid(datasets=("food101",), trainers=("CoOp",), seeds=(3,)).runs()[0]
    assert str(run) == "food101/CoOp/ViT-B-16_8shots/seed3"


def test_a_grid_file_may_hold_several_grids_and_the_command_line_replaces_axes(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text("- datasets: digits\n  lambdas: 0.5\n- datasets: [food101]\n  tag: x\n")
    first, second = read_grids(file, {"seeds": [7]})
    assert (first.datasets, first.lambdas, first.seeds) == (("digits",), (0.5,), (7,))
    assert (second.datasets, second.tag, second.seeds) == (("food101",), "x", (7,))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"datasets": ["digits"], "trainer": ["CoOp"]}, 'did you mean "trainers"'),
        ({"datasets": ["digits"], "shots": [0]}, "shots: expected whole numbers from 1, got 0"),
        ({"datasets": ["digits"], "shots": [1.5]}, "got 1.5"),
        ({"datasets": ["digits"], "seeds": [True]}, "got True"),
        ({"datasets": ["digits"], "lambdas": [-1]}, "lambdas: expected numbers from 0"),
        ({"datasets": ["digits"], "lambdas": [float("nan")]}, "got nan"),
        ({"datasets": ["digits"], "lambdas": [float("inf")]}, "lambdas: .* got inf"),
        ({"datasets": ["digits"], "seeds": [float("inf")]}, "seeds: .* got inf"),
        ({"datasets": ["digits"], "seeds": [1.5]}, "seeds: .* got 1.5"),
        ({"datasets": ["digits"], "seeds": []}, "at least one value"),
        ({"datasets": [3]}, "expected text"),
        ({"datasets": ["digits"], "options": ["A"]}, "options should be a Mapping"),
        ({"trainers": ["CoOp"]}, "names no datasets"),
    ],
)
def test_a_mistake_in_a_grid_is_named(entry, message):
    with pytest.raises(UserError, match=message):
        parse_grid(entry, "grid.yaml")


def test_an_unknown_data_set_or_trainer_is_found_before_anything_runs(root):
    with pytest.raises(UserError, match='did you mean "digits"'):
        main([*arguments(root), "--datasets", "digit"])
    with pytest.raises(UserError, match='did you mean "CoOp_CMP"'):
        main([*arguments(root), "--trainers", "CoOp", "CoOpCMP"])
    assert calls(root) == []


def test_a_number_that_is_none_is_refused(root):
    with pytest.raises(UserError, match="--shots: expected whole numbers, got 'eight'"):
        main(arguments(root, "--shots", "eight"))


def test_the_command_passes_everything_that_makes_the_run_what_it_is(root):
    project = Project(root, root / "output", data="/data")
    run = Run("food101", "CoOp_CMP", "ViT-B/32", 4, 2, 0.001, "log", options=(("OPTIM.LR", "0.1"),))
    words = " ".join(project.command(run))
    assert f"--config-file {root}/configs/trainers/CoOp/vit_b16.yaml" in words
    assert f"--dataset-config-file {root}/configs/datasets/food101.yaml" in words
    assert "--backbone ViT-B/32 --seed 2" in words
    assert words.endswith(
        "--root /data DATASET.NUM_SHOTS 4 TRAINER.CMP.LAMBDA 0.001 TRAINER.CMP.FORM log"
        " OPTIM.LR 0.1"
    )


@pytest.mark.parametrize(
    ("lam", "text"),
    [(0.01, "0.01"), (1.0, "1"), (0.3333333, "0.3333333"), (1e-5, "1e-05"), (0.0, "0")],
)
def test_a_lambda_keeps_all_its_digits(root, lam, text):
    run = Run("digits", "CoOp_CMP", "GlyphCLIP", 8, 1, lam, "ratio")
    assert run.setting == f"GlyphCLIP_8shots_lambda{text}"
    command = Project(root, root / "output").command(run)
    assert command[command.index("TRAINER.CMP.LAMBDA") + 1] == text
    assert main(arguments(root, "--seeds", "1", "--trainers", "CoOp_CMP", "--lambdas", text)) == 0


def test_a_command_to_copy_survives_the_shell(root):
    project = Project(root, root / "output", data="/my data")
    run = Run("digits", "CoOp", "GlyphCLIP", 8, options=(("INPUT.TRANSFORMS", "['a', 'b']"),))
    assert shlex.split(project.shell_command(run))[1:] == project.command(run)


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


def test_a_dry_run_lists_what_is_done_and_estimates_the_rest(root, capsys):
    main(arguments(root, "--seeds", "1"))
    capsys.readouterr()
    assert main(arguments(root, "--dry-run", "--jobs", "1")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["done", "open", "open", "3"]
    assert lines[-1] == "3 runs, 2 to do; time: 4 s"
    assert len(calls(root)) == 1


@pytest.mark.parametrize("fork", [False, True], ids=["process", "fork"])
def test_failures_are_retried_once_and_listed_while_the_others_go_on(root, capsys, fork):
    behave(root, {1: ["crash"], 2: ["die", "good"], 3: ["user error"], 4: ["good"]})
    flags = ("--seeds", "1", "2", "3", "4", "--fork" if fork else "--no-fork")
    assert main(arguments(root, *flags)) == 1
    made = [path[-1] for path in calls(root)]
    assert made == ["1", "1", "2", "2", "3", "4"], "a user's mistake is not repeated"
    out, err = capsys.readouterr()
    assert "again  digits/CoOp/GlyphCLIP_8shots/seed2: killed by SIGKILL" in out
    assert "2 of the runs failed" in err
    assert "seed1: ended with exit code 1" in err
    assert "RuntimeError: the loss exploded" in err
    assert "seed3: ended with exit code 2" in err
    assert "| CoOp      | 2, 4    |" in out


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
        ("nan", "results.json"),
        ("schema", "schema"),
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
    assert "nan" not in out.split("| trainer")[1]
    assert "| CoOp      | 2       |" in out


def test_a_results_file_of_another_run_is_not_used_and_not_overwritten(root, capsys):
    assert main(arguments(root, "--seeds", "1")) == 0
    file = root / "output/digits/CoOp/GlyphCLIP_8shots/seed1/results.json"
    foreign = file.read_text().replace('"shots": 8', '"shots": 16')
    file.write_text(foreign)
    assert main(arguments(root, "--seeds", "1")) == 1
    assert "shots is 16, not 8" in capsys.readouterr().err
    assert file.read_text() == foreign


def test_other_options_are_other_settings(root, tmp_path, capsys):
    grid = tmp_path / "grid.yaml"
    grid.write_text("datasets: digits\ntrainers: CoOp\nseeds: 1\n")
    words = ["--project", str(root), "--output", str(root / "output"), str(grid)]
    assert main(words) == 0
    grid.write_text(grid.read_text() + "options: {OPTIM.MAX_EPOCH: 5}\n")
    assert main(words) == 1
    assert "options is {}, not {'OPTIM.MAX_EPOCH': '5'}" in capsys.readouterr().err
    grid.write_text(grid.read_text() + "tag: short\n")
    assert main(words) == 0, "a tag gives them a directory of their own"


@pytest.mark.parametrize("name", ["trainers/CoOp/glyph", "datasets/digits"])
def test_results_made_before_a_config_changed_are_of_another_run(root, capsys, name):
    file = root / f"configs/{name}.yaml"
    assert main(arguments(root, "--seeds", "1")) == 0
    text = file.read_text()
    file.write_text(f"# why\n\n{text}\nTRAIN: {{CHECKPOINT_FREQ: 5}}\n")
    assert main(arguments(root, "--seeds", "1")) == 0, "nothing that a result depends on"
    file.write_text(f"{text}\nOPTIM: {{LR: 0.5}}\n")
    assert main(arguments(root, "--seeds", "1")) == 1
    err = capsys.readouterr().err
    assert f"configs/{name}.yaml has changed since; remove the run's directory, or choose" in err
    assert err.count("changed") == 1
    assert main(arguments(root, "--seeds", "1", "--tag", "fast")) == 0
    assert len(calls(root)) == 2
    (root / "output/digits/CoOp/GlyphCLIP_8shots/seed1/sweep.json").unlink()
    assert main(arguments(root, "--seeds", "1")) == 0, "a run by hand has nothing to compare"


def test_a_config_file_is_read_once_for_all_its_runs(root, monkeypatch):
    read: list[Path] = []
    digest = project_module._digest

    def note(file: Path) -> str:
        read.append(file)
        return digest(file)

    monkeypatch.setattr(project_module, "_digest", note)
    assert main(arguments(root, "--seeds", "1", "2", "3")) == 0
    assert len(read) == 2


def test_a_run_past_its_time_limit_is_ended(root, capsys):
    behave(root, {1: ["hang"]})
    assert main(arguments(root, "--seeds", "1", "2", "--time-limit", "0.02")) == 1
    assert "ended at its time limit of 1 s" in capsys.readouterr().err
    assert "digits/CoOp/GlyphCLIP_8shots/seed2" in calls(root)


def test_results_of_a_run_that_failed_after_writing_them_stay_out_of_the_table(root, capsys):
    behave(root, {1: ["late crash"], 2: ["late hang"], 3: ["late crash", "good"]})
    assert main(arguments(root, "--time-limit", "0.04")) == 1
    out, err = capsys.readouterr()
    assert "seed1: ended with exit code 1" in err
    assert "seed2: ended at its time limit" in err
    assert "| CoOp      | 3       |" in out
    project = Project(root, root / "output")
    for seed, kind in ((1, "open"), (2, "open"), (3, "done")):
        run = Run("digits", "CoOp", "GlyphCLIP", 8, seed)
        assert project.state(run).kind == kind
        assert (project.directory(run) / "results.rejected.json").exists()


def test_two_sweeps_at_once_do_every_run_exactly_once(root):
    seeds = [str(seed) for seed in range(1, 7)]
    behave(root, {seed: ["slow"] for seed in range(1, 7)})
    sweeps = [start_sweep(root, "--seeds", *seeds) for _ in range(2)]
    outputs = [sweep.communicate(timeout=60)[0] for sweep in sweeps]
    assert [sweep.returncode for sweep in sweeps] == [0, 0]
    assert [path[-1] for path in calls(root)] == seeds
    tables = {output[output.index("| trainer") :] for output in outputs}
    assert len(tables) == 1


@pytest.mark.parametrize("fork", ["--no-fork", "--fork"])
def test_a_sweep_killed_outright_takes_its_runs_with_it_and_is_continued(root, fork):
    behave(root, {1: ["good"], 2: ["hang", "good"], 3: ["good"]})
    sweep = start_sweep(root, "--jobs", "1", fork)
    wait_until(lambda: len(calls(root)) == 2)
    sweep.kill()
    sweep.communicate()
    assert main(arguments(root)) == 0
    assert [path[-1] for path in calls(root)] == ["1", "2", "2", "3"]


TRAINER_CONFIGS = sorted((Path(__file__).parents[1] / "configs/trainers").glob("*/*.yaml"))


@pytest.mark.parametrize(
    "file",
    # Fine-tuned models are too large to keep several of each run.
    [
        pytest.param(f, id=f"{f.parent.name}/{f.stem}")
        for f in TRAINER_CONFIGS
        if "CLIPFT" not in str(f)
    ],
)
def test_a_killed_long_run_has_a_checkpoint_to_go_on_from(file):
    settings = yaml.safe_load(file.read_text())
    table = [epochs for _, epochs in settings["OPTIM"].get("SHOT_EPOCHS", [])]
    longest = max(table, default=None) or settings["OPTIM"]["MAX_EPOCH"]
    assert 4 <= longest / settings["TRAIN"]["CHECKPOINT_FREQ"] <= 20


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
    sweep = start_sweep(root, "--seeds", "1")
    wait_until(lambda: len(calls(root)) == 1)
    sweep.send_signal(number)
    sweep.communicate(timeout=30)
    assert sweep.returncode == 130
    lock = RunLock.take(root / "output/digits/CoOp/GlyphCLIP_8shots/seed1")
    assert lock is not None, "nothing is left that holds the run"
    lock.release()
    assert main(arguments(root, "--seeds", "1")) == 0


@pytest.mark.parametrize("fork", ["--no-fork", "--fork"])
def test_a_sweep_under_nohup_and_its_runs_survive_the_end_of_the_terminal(root, fork):
    behave(root, {1: ["slow"]})
    sweep = start_sweep(root, "--seeds", "1", fork, ignore=signal.SIGHUP)
    wait_until(lambda: len(calls(root)) == 1)
    os.killpg(sweep.pid, signal.SIGHUP)
    sweep.communicate(timeout=60)
    assert sweep.returncode == 0
    assert len(calls(root)) == 1, "the run went on and was not started again"


def test_a_forked_run_that_is_gone_gets_no_signal(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("")
    with open(tmp_path / "log", "ab") as log:
        process = ForkedProcess([str(script)], dict(os.environ), log)
    wait_until(lambda: process.poll() is not None)
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
    process.terminate()
    process.kill()
    assert sent == [], "its number may be another process's by now"


def test_a_lock_is_exclusive_until_it_is_released(tmp_path):
    first = RunLock.take(tmp_path / "run")
    assert first is not None
    assert RunLock.take(tmp_path / "run") is None
    first.release()
    second = RunLock.take(tmp_path / "run")
    assert second is not None
    second.release()


def test_devices_become_visible_devices(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environment_for("cuda:1", 0)["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment_for("cuda", 0)["CUDA_VISIBLE_DEVICES"] == "0"
    assert environment_for("cpu", 2)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment_for("cpu", 2)["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert environment_for("cuda:1", 0)["CUDA_VISIBLE_DEVICES"] == "6"


@pytest.fixture
def three_gpus(tmp_path, monkeypatch):
    """A machine with three GPUs, as far as nvidia-smi says."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nfor i in 0 1 2; do echo GPU $i: A100; echo '  MIG 1g'; done\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("variable", "names"),
    [(None, ["0", "1", "2"]), ("2,0", ["2", "0"]), ("", []), ("-1", []), ("1,-1,2", ["1"])],
)
def test_hidden_gpus_stay_hidden(three_gpus, monkeypatch, variable, names):
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == names


def test_a_gpu_beyond_the_visible_ones_is_refused_before_anything_starts(
    root, three_gpus, monkeypatch
):
    with pytest.raises(UserError, match=r"cuda:3 is not among the 3 visible GPUs$"):
        main(arguments(root, "--devices", "cuda:0", "cuda:3"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="cuda:0 is not among the 0 visible GPUs"):
        main(arguments(root, "--devices", "cuda:0"))
    assert calls(root) == []


def test_runs_are_told_their_device_so_that_none_falls_back_to_another(root, three_gpus):
    assert main(arguments(root, "--seeds", "1", "2", "--devices", "cuda:2", "cpu")) == 0
    logs = (root / "output").glob("digits/CoOp/GlyphCLIP_8shots/seed*/sweep.log")
    seen = sorted(re.findall(r"on (\w+) of ('.*')", "".join(log.read_text() for log in logs)))
    assert seen == [("cpu", "''"), ("cuda", "'2'")]
    run = Run("digits", "CoOp", "GlyphCLIP", 8)
    assert "--device" not in Project(root, root / "output").command(run), "nor in what people copy"


@pytest.mark.parametrize("option", ["--jobs", "--threads", "--time-limit"])
def test_nothing_can_be_done_zero_at_a_time(root, option):
    with pytest.raises(UserError, match="take numbers above 0"):
        main(arguments(root, option, "0"))


def test_a_device_that_does_not_exist_is_refused(root):
    with pytest.raises(UserError, match="--devices: expected cpu, mps, cuda or cuda:N, got 'gpu'"):
        main(arguments(root, "--devices", "gpu"))


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["--dry-run"], ["a.yaml", "b.yaml"], ["digits", "a.yaml"]]
)
def test_the_sweep_script_says_how_it_is_used(words):
    script = Path(__file__).parents[1] / "scripts/sweep.sh"
    end = subprocess.run(["bash", script, *words], capture_output=True, text=True, check=False)
    assert (end.returncode, end.stderr[:31]) == (2, "usage: bash scripts/sweep.sh <d")


def test_slurm_jobs_keep_a_training_with_its_evaluations():
    runs = Grid(("digits",), ("CoOp",), seeds=(1, 2), targets=("digits_noise",)).runs()
    assert [[run.dataset for run in job] for job in group(runs)] == [["digits", "digits_noise"]] * 2
    assert parameters("partition=gpu gpus_per_node=1") == {
        "slurm_partition": "gpu",
        "slurm_gpus_per_node": 1,
    }
    with pytest.raises(UserError, match="key=value"):
        parameters("gpu")


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


def candidates(*rows: tuple[float | None, list[float], list[float]]) -> list[Candidate]:
    return [Candidate(lam, tuple(val), tuple(test), (0.5,) * len(val)) for lam, val, test in rows]


def test_lambda_is_chosen_on_the_validation_part_and_of_equals_the_weakest():
    rows = candidates(
        (None, [0.3, 0.3], [0.1, 0.1]),
        (0.1, [0.2, 0.1], [0.4, 0.4]),
        (0.01, [0.1, 0.2], [0.3, 0.3]),
    )
    assert choose(rows, "validation").lam == 0.01
    assert choose(rows, "test").lam is None
    method = Run("digits", "CoOp", "GlyphCLIP", 8)
    text = describe(method, rows, "ece")
    assert "CoOp on digits, 8 shots: 0.01; the test set would have chosen no penalty" in text
    assert "(test ECE 20.00 lower)" in text
    assert re.search(r"\| 0.01 .* chosen", text)
    assert re.search(r"\| no penalty .* best on test", text)


def test_the_line_search_trains_and_validates_every_weight_of_every_method(root, capsys):
    words = arguments(root, "--seeds", "1", "2", "--lambdas", "0.1", "0.5")
    assert select(words) == 0
    # no penalty and two weights, two seeds, each trained and validated
    assert len(calls(root)) == 3 * 2 * 2
    assert "digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.5_val/seed2" in calls(root)
    # the fake gives the twins 5 points more ECE on both parts
    assert "no penalty, which the test set would have chosen too" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "same"), [([1, 0, 2], True), ([1, 0, 1], False), ([1, 0], False)]
)
def test_lambda_is_not_chosen_where_the_validation_images_are_the_test_images(root, labels, same):
    project = Project(root, root / "output")
    run = Run("digits", "CoOp", "GlyphCLIP", 8)
    assert main(arguments(root, "--seeds", "1")) == 0
    results = json.loads((project.directory(run) / "results.json").read_text())
    # Figures of the same images differ in the last digits from run to run on a GPU.
    metrics = {name: value + 1e-7 for name, value in results["metrics"].items()}
    for part, figures, those in (("test", results["metrics"], [1, 0, 2]), ("val", metrics, labels)):
        record = {**results, "split": part, "metrics": figures, "sizes": {"test": len(those)}}
        folder = project.directory(replace(run, split=part))  # type: ignore[arg-type]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps(record))
        write_predictions(folder / "predictions.npz", np.zeros((len(those), 3)), those, list("abc"))
    if same:
        with pytest.raises(UserError, match="digits: its validation part is the test set"):
            collect(project, [run], "ece")
    else:
        assert len(collect(project, [run], "ece")) == 1


def test_the_line_search_refuses_a_data_set_without_validation_part_before_anything_runs(root):
    file = root / "configs/datasets/my_images.yaml"
    file.write_text("DATASET: {NAME: ImageNet}\n")
    with pytest.raises(UserError, match="my_images: its validation part is the test set"):
        select([*arguments(root), "--datasets", "digits", "my_images"])
    assert calls(root) == []


def test_the_line_search_knows_which_data_sets_have_no_validation_part():
    for name in DATASET_REGISTRY.registered_names():
        kind = DATASET_REGISTRY.get(name)
        if issubclass(kind, FewShotDataset) and kind.sizes is not None:
            has_none = kind.sizes.val == 0 or not kind.sample_val
            assert name.startswith(NO_VALIDATION) == has_none, name


class FakeExecutor:
    """As much of submitit as a sweep uses; the wait for the second job is interrupted."""

    cancelled: ClassVar[list[str]] = []

    def __init__(self, folder: Path, cluster: str) -> None:
        pass

    def update_parameters(self, **parameters: object) -> None:
        pass

    def map_array(self, work, projects, settings, jobs):
        return [FakeJob(f"7_{index}") for index in range(len(jobs))]


class FakeJob:
    def __init__(self, job_id: str) -> None:
        self.job_id = job_id

    def result(self):
        if self.job_id == "7_1":
            raise KeyboardInterrupt
        return []

    def cancel(self, check: bool) -> None:
        FakeExecutor.cancelled.append(self.job_id)


def test_an_interrupted_sweep_cancels_its_slurm_jobs(root, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=FakeExecutor))
    runs = Grid(("digits",), ("CoOp",), seeds=(1, 2, 3)).runs()
    with pytest.raises(KeyboardInterrupt):
        launch(Project(root, root / "output"), Settings(), runs, "partition=gpu")
    assert FakeExecutor.cancelled == ["7_0", "7_1", "7_2"]
    assert "Waiting for 3 Slurm jobs" in capsys.readouterr().out


def test_slurm_that_is_not_there_or_does_not_know_a_key_is_a_users_mistake(root, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(root))  # without srun, also on a cluster
    project, runs = Project(root, root / "output"), Grid(("digits",), ("CoOp",)).runs()
    with pytest.raises(UserError, match='--slurm: Could not detect "srun"'):
        launch(project, Settings(), runs, "partition=gpu")
    with pytest.raises(UserError, match="--slurm: Unknown argument 'queue'"):
        launch(project, Settings(), runs, "queue=gpu", cluster="local")
    assert calls(root) == []


@pytest.mark.parametrize("text", ["time=90", "timeout_min=90"])
def test_jobs_ask_for_the_time_that_was_given_and_a_refusal_is_shown(root, monkeypatch, text):
    pytest.importorskip("submitit")
    folder = root / "bin"
    folder.mkdir()
    (folder / "srun").write_text("")
    (folder / "sbatch").write_text(
        f"#!/bin/sh\ncat $1 > {root}/job.sh\necho 'sbatch: error: invalid partition' >&2\nexit 1\n"
    )
    for file in folder.iterdir():
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    runs = Grid(("digits",), ("CoOp",), seeds=(1, 2)).runs()
    with pytest.raises(UserError, match=r"--slurm: .*invalid partition"):
        launch(Project(root, root / "output"), Settings(), runs, text)
    assert "#SBATCH --time=90\n" in (root / "job.sh").read_text()


def test_slurm_jobs_do_their_runs_and_report_failures(root):
    pytest.importorskip("submitit")
    behave(root, {2: ["crash"]})
    project = Project(root, root / "output")
    runs = Grid(("digits",), ("CoOp",), seeds=(1, 2), targets=("digits_noise",)).runs()
    failures = launch(project, Settings(time_limit=60), runs, "partition=gpu", cluster="local")
    assert [str(failure.run) for failure in failures] == [
        "digits/CoOp/GlyphCLIP_8shots/seed2",
        "digits_noise/CoOp/GlyphCLIP_8shots_from_digits/seed2",
    ]
    assert "the loss exploded" in failures[0].log[-1]
    assert project.state(runs[1]).kind == "done"
