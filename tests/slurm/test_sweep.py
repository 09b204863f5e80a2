"""Sweeps on a real Slurm of one node: nothing is lost and nothing is done twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coop_cmp import CONFIGS
from tests.slurm.cluster import NODE, Cluster
from tests.sweep.fake import (
    FAKE_TRAIN,
    StartedSweep,
    behave,
    calls,
    wait_until,
)

ONE = ("--slurm", "cpus_per_task=1", "--jobs", "8")
SEED = "digits/CoOp/GlyphCLIP_8shots/seed{}"


def sweep(root: Path, *more: str) -> tuple[int | None, str]:
    """A sweep from its start to its end: exit code and output."""
    return StartedSweep(root, *more).end()


def queued(root: Path, state: str = "") -> list[str]:
    """The jobs of this project, or those in a state."""
    names = [folder.name for folder in (root / "output").glob("slurm-*/*")]
    command = ["squeue", "--noheader", "--array", "--format=%F_%K|%j|%T"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    fields = [line.split("|") for line in lines]
    return [job for job, name, now in fields if name in names and state in now]


def scontrol(*words: str) -> None:
    subprocess.run(["scontrol", *words], check=True)


@pytest.fixture(scope="module", autouse=True)
def limited(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A sweep whose first try is too long for its time; it takes a while, beside the other tests.

    Slurm looks at time limits twice a minute.
    """
    folder = tmp_path_factory.mktemp("limited")
    (folder / "train.py").write_text(FAKE_TRAIN)
    (folder / "configs").symlink_to(CONFIGS)
    behave(folder, {1: ["hang", "good"]})
    code, _ = sweep(folder, "--seeds", "1", "--slurm", "time=1 signal=B:USR2@40", "--detach")
    assert code == 0
    yield folder
    shutil.rmtree(folder)


def test_a_sweep_gives_what_a_local_one_gives_in_arrays_as_large_as_allowed(root):
    more = ("--seeds", *"12345", "--targets", "digits_noise")
    code, output = sweep(root, *more, *ONE)
    assert code == 0
    assert [line.partition(": ")[2] for line in output.splitlines() if "submitted" in line] == [
        "4 jobs for 8 runs, 12 h each",
        "1 job for 2 runs, 12 h each",
    ]
    assert "| 53.00 ± 1.58 |" in output  # the table
    (root / "output").rename(root / "slurm")
    (root / "calls.txt").unlink()
    assert sweep(root, *more)[0] == 0
    found = sorted((root / "output").rglob("results.json"))
    assert len(found) == 10
    for file in found:
        there = root / "slurm" / file.relative_to(root / "output")
        assert json.loads(there.read_text()) == json.loads(file.read_text())


def test_a_detached_sweep_is_attached_to_and_jobs_are_not_submitted_again(root):
    behave(root, {1: ["wait"], 2: ["wait and crash"], 3: ["wait"]})
    more = ("--seeds", "1", "2", "3", *ONE)
    code, output = sweep(root, *more, "--detach")
    assert code == 0
    assert "submitted" in output
    assert "|" not in output  # no table yet
    process = StartedSweep(root, *more)
    wait_until(lambda: "attached to 3 Slurm jobs" in process.output())
    (root / "go").touch()
    code, output = process.end()
    assert code == 1
    assert "submitted" not in output
    assert calls(root) == [SEED.format(1), SEED.format(2), SEED.format(2), SEED.format(3)]
    behave(root, {})
    code, output = sweep(root, *more)
    assert code == 0
    assert "the loss exploded" in output  # of the job that ended before


def test_a_cancelled_job_is_a_failure_and_the_same_command_does_its_run(root):
    behave(root, {1: ["hang", "good"]})
    process = StartedSweep(root, "--seeds", "1", *ONE)
    wait_until(lambda: calls(root) != [])
    subprocess.run(["scancel", *queued(root)], check=True)
    code, output = process.end()
    assert code == 1
    assert f"FAILED {SEED.format(1)}: Slurm job" in output
    assert "CANCELLED" in output
    assert sweep(root, "--seeds", "1", *ONE)[0] == 0


def test_cancel_ends_the_jobs_of_the_runs_that_it_names(root):
    behave(root, {1: ["hang"], 2: ["hang"]})
    sweep(root, "--seeds", "1", *ONE, "--detach")
    (other,) = queued(root)
    sweep(root, "--seeds", "2", *ONE, "--detach")
    code, output = sweep(root, "--seeds", "2", *ONE, "--cancel")
    assert code == 0
    assert "Cancelled 1 Slurm job." in output
    wait_until(lambda: queued(root) == [other])
    sweep(root, "--seeds", "1", *ONE, "--cancel")
    wait_until(lambda: queued(root) == [])


def test_a_request_that_cannot_be_met_is_told_with_slurms_reason(root):
    code, output = sweep(root, "--seeds", "1", "--slurm", "mem=99999999")
    assert code == 2, "Slurm knows at once"
    assert "Requested node configuration is not available" in output
    assert queued(root) == []
    more = ("--seeds", "1", "--slurm", "cpus_per_task=99")
    process = StartedSweep(root, *more)
    wait_until(lambda: "(PartitionConfig: Slurm cannot start this" in process.output())
    process.kill()
    process.end()
    assert sweep(root, *more, "--cancel")[0] == 0
    wait_until(lambda: queued(root) == [])


def test_variables_of_slurms_commands_change_nothing(root, monkeypatch):
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SBATCH_WAIT", "1")
    behave(root, {seed: ["wait"] for seed in range(1, 10)})
    more = ("--seeds", *"123456789", "--slurm", "cpus_per_task=1", "--jobs", "1")
    assert sweep(root, *more, "--detach")[0] == 0
    assert "submitted" not in sweep(root, *more, "--detach")[1]
    (root / "go").touch()
    assert sweep(root, *more, "--cancel")[0] == 0


def test_jobs_go_on_when_their_submitter_is_killed_and_are_found_again(root):
    behave(root, {seed: ["slow"] for seed in (1, 2)})
    process = StartedSweep(root, "--seeds", "1", "2", *ONE)
    wait_until(lambda: calls(root) != [])
    process.kill()
    process.end()
    code, _ = sweep(root, "--seeds", "1", "2", *ONE)
    assert code == 0
    assert calls(root) == [SEED.format(1), SEED.format(2)]


def test_ctrl_c_leaves_the_jobs_where_nobody_can_be_asked(root):
    behave(root, {1: ["slow"]})
    process = StartedSweep(root, "--seeds", "1", *ONE)
    wait_until(lambda: calls(root) != [])
    os.kill(process.pid, signal.SIGINT)
    code, output = process.end()
    assert code == 130
    assert "Left to go on: 1 Slurm job" in output
    wait_until(lambda: (root / "output" / SEED.format(1) / "results.json").exists())


def test_two_sweeps_at_once_do_each_run_once(root):
    seeds = "1234"
    behave(root, {int(seed): ["slow"] for seed in seeds})
    both = [StartedSweep(root, "--seeds", *seeds, *ONE) for _ in range(2)]
    ends = [process.end() for process in both]
    assert [code for code, _ in ends] == [0, 0], ends
    assert calls(root) == [SEED.format(seed) for seed in seeds]


def test_what_is_too_much_for_the_queue_is_submitted_bit_by_bit(root, monkeypatch):
    """Limits per user need Slurm's data base, so that here a wrapper refuses as Slurm would."""
    folder = root / "bin"
    folder.mkdir()
    script = f"""#!{sys.executable}
import os, re, subprocess, sys
size = 1 + int(re.search(r"--array=0-(\\d+)", " ".join(sys.argv))[1])
names = " ".join(os.listdir("{root}/output/slurm-" + os.environ.get("USER", "root")))
found = subprocess.run(["squeue", "-h", "-r", "-o", "%j"], capture_output=True, text=True).stdout
if size + sum(name in names for name in found.split()) > 2:
    print("sbatch: error: QOSMaxSubmitJobPerUserLimit", file=sys.stderr)
    print("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
          "(job submit limit, user's size and/or time limits)", file=sys.stderr)
    sys.exit(1)
os.execv("{shutil.which("sbatch")}", ["sbatch", *sys.argv[1:]])
"""
    (folder / "sbatch").write_text(script)
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("USER", "root")
    code, output = sweep(root, "--seeds", *"1234", *ONE)
    assert code == 0, output
    assert "2 not submitted yet" in output
    assert calls(root) == [SEED.format(seed) for seed in "1234"]


def test_a_controller_that_is_away_for_a_while_is_waited_for(root, cluster):
    behave(root, {1: ["slow"]})
    process = StartedSweep(root, "--seeds", "1", "2", "--targets", "digits_noise", *ONE)
    wait_until(lambda: calls(root) != [])
    cluster.stop("slurmctld")
    wait_until(lambda: "does not answer" in process.output())
    cluster.start("slurmctld")
    code, output = process.end()
    assert code == 0, output
    assert len(calls(root)) == 4


def test_at_its_time_limit_a_job_is_requeued_and_goes_on(limited):
    code, output = sweep(limited, "--seeds", "1", "--slurm", "time=1")
    assert code == 0, output
    assert calls(limited) == [SEED.format(1)] * 2
    assert "submitted" not in output


def test_a_preempted_job_starts_again_when_the_other_has_ended(root):
    behave(root, {1: ["hang", "good"]})
    process = StartedSweep(root, "--seeds", "1", *ONE)
    wait_until(lambda: calls(root) != [])
    urgent = ["sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
    subprocess.run(urgent, check=True, stdout=subprocess.DEVNULL)
    code, output = process.end()
    assert code == 0, output
    assert calls(root) == [SEED.format(1)] * 2


def test_the_jobs_of_a_node_that_goes_down_start_again_when_it_is_back(root):
    behave(root, {1: ["hang", "good"]})
    process = StartedSweep(root, "--seeds", "1", *ONE)
    wait_until(lambda: calls(root) != [])
    scontrol("update", f"node={NODE}", "state=down", "reason=test")
    wait_until(lambda: queued(root, "PENDING") != [])
    subprocess.run(["scontrol", "update", f"node={NODE}", "state=resume"], check=False)
    code, output = process.end()
    assert code == 0, output
    assert calls(root) == [SEED.format(1)] * 2
