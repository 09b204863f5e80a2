"""coop_cmp/sweep/slurm: what is submitted, and what a job does; tests/slurm has a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from coop_cmp.errors import UserError
from coop_cmp.runs.grid import Grid
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.lock import RunLock
from coop_cmp.sweep.slurm import attach, job, queue
from coop_cmp.sweep.slurm.plan import chains, parameters, plan
from coop_cmp.sweep.slurm.submission import home, read_all, submit
from coop_cmp.sweep.timing import Estimator
from tests.sweep.fake import arguments, behave, calls, main, project_of, settings_of

RUNS = Grid(("digits",), ("CoOp",), seeds=tuple(range(10)), targets=("digits_noise",)).runs()


def estimator(training: float, test: float) -> Estimator:
    known = Estimator()
    known.add(RUNS[0], training)
    known.add(RUNS[1], test)
    return known


def test_parameters_stay_text():
    assert parameters("account=007 cpus_per_task=8 gres=gpu:1 comment='a b'") == {
        "account": "007",
        "cpus-per-task": "8",
        "gres": "gpu:1",
        "comment": "a b",
    }
    with pytest.raises(UserError, match="key=value"):
        parameters("gpu")


def test_a_training_stays_with_its_evaluations():
    assert chains(list(reversed(RUNS)))[0] == (RUNS[-2], RUNS[-1])
    assert Counter(map(len, chains(RUNS))) == {2: 10}


def test_jobs_of_unknown_length_are_not_packed_and_arrays_are_cut():
    arrays = plan(RUNS, Estimator(), 720 * 60, largest=4)
    assert [(len(array.jobs), array.minutes) for array in arrays] == [(4, 720), (4, 720), (2, 720)]
    assert [run for array in arrays for each in array.jobs for run in each] == RUNS


def test_short_runs_share_a_job_and_ask_for_twice_their_time_and_ten_minutes():
    # 10 chains of 700 s: five fill an hour. 2 x 3500 s + 10 min = 127 min, in steps 240.
    arrays = plan(RUNS, estimator(600, 100), 720 * 60)
    assert [(list(map(len, array.jobs)), array.minutes) for array in arrays] == [([10, 10], 240)]
    # Two at a time take half as long, so that all fit into one job.
    (array,) = plan(RUNS, estimator(600, 100), 720 * 60, per_job=2)
    assert (list(map(len, array.jobs)), array.minutes) == ([20], 240)
    # Long ones do not share: 2 x 2 h + 10 min = 250 min.
    arrays = plan(RUNS, estimator(7000, 200), 720 * 60)
    assert [(list(map(len, array.jobs)), array.minutes) for array in arrays] == [([2] * 10, 480)]


def test_the_folder_of_jobs_is_its_users_alone(root):
    project = project_of(root)
    folder = home(project)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with pytest.raises(UserError, match="private"):
        home(project)
    folder.rmdir()
    (root / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(root / "elsewhere")
    with pytest.raises(UserError, match="private"):
        read_all(project)


def test_without_slurm_there_is_a_plan_and_no_submission(root, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(root))
    assert main(arguments(root, "--slurm", "time=90", "--dry-run")) == 0
    output = capsys.readouterr().out
    assert "default of 1001 jobs" in output
    assert "3 Slurm jobs in 1 array, 2 at a time" in output
    assert "array 1: 3 jobs for 3 runs, 12 h each" in output
    assert "time=90 was given" in output
    with pytest.raises(UserError, match="no squeue here"):
        main(arguments(root, "--slurm", ""))
    with pytest.raises(UserError, match="go with --slurm"):
        main(arguments(root, "--detach"))
    assert calls(root) == []


def test_what_sbatch_is_told_and_why_it_refuses(root, tool):
    tool("squeue", "")
    tool("sbatch", f'echo "$@" > {root}/told; echo error: bad partition >&2; exit 1')
    with pytest.raises(UserError, match="--slurm: error: bad partition"):
        main(arguments(root, "--slurm", "account=007 partition=none"))
    told = (root / "told").read_text().split()
    assert {"--account=007", "--time=720", "--array=0-2%2"} <= set(told)
    assert read_all(project_of(root)) == []


@pytest.mark.parametrize("others", ["", "3|N/A|mine|COMPLETING|None"])
def test_a_queue_that_is_full_is_waited_for_as_long_as_something_is_in_it(root, tool, others):
    limit = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    tool("squeue", f"echo '{others}'")
    tool("sbatch", f'echo "sbatch: error: {limit}" >&2; exit 1')
    progress = attach.Progress(3, 0, 1, Estimator())
    attachment = attach.Attachment(project_of(root), Settings(), progress, RUNS, {})
    attachment.look()
    with nullcontext() if others else pytest.raises(queue.Refused, match="submit limit"):
        attachment.submit()
    assert attachment.full
    assert f"{len(RUNS)} not submitted yet" in attachment.status()


def test_commands_for_any_scheduler_do_the_runs_in_any_order(root, capsys):
    more = ("--seeds", "1", "2", "--targets", "digits_noise")
    assert main(arguments(root, *more, "--dry-run", "--commands")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line in reversed(lines):
        subprocess.run(line, shell=True, check=True, stdout=subprocess.DEVNULL)
    assert main(arguments(root, *more)) == 0
    assert "All 4 runs are complete" in capsys.readouterr().out


@pytest.fixture
def record(root, monkeypatch):
    """A submitted job with one run that does not end."""
    behave(root, {0: ["hang"]})
    monkeypatch.setattr(queue, "submit", lambda script, options: 7)
    project = project_of(root)
    project.check(RUNS[:1])
    return submit(project, settings_of(root), [RUNS[:1]], {}, 1)[0]


def interrupt_soon(root: Path) -> None:
    def send() -> None:
        while not calls(root):
            threading.Event().wait(0.05)
        os.kill(os.getpid(), signal.SIGUSR2)

    threading.Thread(target=send).start()


@pytest.mark.parametrize("progress", [True, False])
def test_a_job_at_its_time_limit_is_requeued_as_long_as_it_gets_on(
    root, record, monkeypatch, progress
):
    requeued = []
    monkeypatch.setattr(queue, "requeue", lambda: requeued.append(True))
    monkeypatch.setattr(job.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(job, "has_progressed", lambda *_: progress)
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR2)]
    for _ in range(job.IDLE):
        (root / "calls.txt").unlink(missing_ok=True)
        interrupt_soon(root)
        assert job.work(record, 0) == 1
    for number, handler in zip((signal.SIGTERM, signal.SIGUSR2), before, strict=True):
        signal.signal(number, handler)
    assert len(requeued) == (job.IDLE if progress else job.IDLE - 1)
    failure = record.failure(0, RUNS[0])
    assert (failure is None) == progress


def test_progress_is_a_checkpoint_or_results_since_the_job_began(root):
    project = project_of(root)
    checkpoint = project.directory(RUNS[0]) / "prompt_learner/model.pth.tar-5"
    checkpoint.parent.mkdir(parents=True)
    assert not job.has_progressed(project, RUNS, 0)
    checkpoint.touch()
    os.utime(checkpoint, (100, 100))
    assert job.has_progressed(project, RUNS, 99)
    assert not job.has_progressed(project, RUNS, 101)


@pytest.mark.parametrize(
    ("other", "locked", "taken"),
    [
        ("8 0", True, False),  # a job in the queue holds it
        ("9 0", True, True),  # that job is gone, the lock of its lost node is not
        ("7 0", True, True),  # this job before it was requeued
        ("7 1", True, False),  # another process of this job
        ("", True, False),  # a sweep without Slurm
        ("7 1", False, True),  # a process of this job that is gone
        ("8 0", False, False),  # a job in the queue, on a disk where locks end at the machine
        ("9 0", False, True),
    ],
)
def test_the_queue_knows_more_than_a_lock(tmp_path, monkeypatch, tool, other, locked, taken):
    gone = "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1"
    tool("squeue", f'case "$*" in *=8*) echo RUNNING;; *) {gone};; esac')
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    queue._in_queue.cache_clear()
    run = tmp_path / "run"
    first = RunLock.take(run) if locked else None
    run.mkdir(exist_ok=True)
    (run / ".lock").write_text(other)
    second = RunLock.take(run)
    assert (second is not None) == taken
    for lock in filter(None, (first, second)):
        lock.release()
    queue._in_queue.cache_clear()


@pytest.mark.parametrize(("answer", "cancelled"), [("n", ["7_0"]), ("", []), ("y", [])])
def test_ctrl_c_asks_whether_to_cancel(root, record, monkeypatch, answer, cancelled):
    gone: list[str] = []
    task = queue.Task(7, 0, record.name, "RUNNING", "None")
    monkeypatch.setattr(queue, "tasks", lambda: [task])
    monkeypatch.setattr(queue, "cancel", lambda tasks: gone.extend(task.id for task in tasks))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: answer)

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(attach.time, "sleep", interrupted)
    progress = attach.Progress(1, 0, 1, Estimator())
    project = project_of(root)
    with pytest.raises(KeyboardInterrupt):
        attach.follow(attach.Attachment(project, Settings(), progress, RUNS[:1], {}))
    assert gone == cancelled
