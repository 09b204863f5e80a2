"""Many runs: the frame of results, all tables and a sweep's tick, on synthetic results.

    python benchmarks/results.py --runs 5000 --images 1000

Makes that many finished runs of the paper's tables (over as many seeds as it takes) in a temporary
folder, then times the commands a user would call, each in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import count, islice
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from coop_cmp.report.definitions import FIGURE, TITLES, table  # noqa: E402
from coop_cmp.runs.project import Project  # noqa: E402
from coop_cmp.runs.run import Run  # noqa: E402
from coop_cmp.sweep.progress import Progress  # noqa: E402
from coop_cmp.sweep.timing import Estimator  # noqa: E402
from tests.made_runs import finish_with  # noqa: E402


def runs_of_tables(number: int) -> list[Run]:
    """So many runs of the paper's tables, one seed after another."""
    every = (
        run
        for seed in count(1)
        for name in (*TITLES, FIGURE)
        for run in table(name, (seed,)).runs()
    )
    unique: dict[Run, None] = {}
    for run in every:
        unique[run] = None
        if len(unique) == number:
            break
    return list(islice(unique, number))


def make(project: Project, runs: list[Run], images: int) -> None:
    """Write results and outcomes of every run."""
    random = np.random.default_rng(0)
    for run in runs:
        confidence = random.uniform(0.3, 0.99, images)
        correct = random.random(images) < confidence
        finish_with(project, run, confidence, correct, accuracy=float(correct.mean()))


def timed(words: list[str]) -> tuple[float, float]:
    """Seconds and peak MB of a command; what it prints is dropped."""
    command = [sys.executable, "-m", "coop_cmp.cli", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return time.perf_counter() - start, usage.ru_maxrss * unit / 2**20


def tick_milliseconds(runs: list[Run]) -> float:
    """How long a sweep of all these runs takes to say how much time is left."""
    estimator = Estimator()
    estimator.add(runs[0], 60.0)
    progress = Progress(len(runs), 0, 8, estimator)
    progress.begin(runs)
    start = time.perf_counter()
    for _ in range(100):
        progress.time_left({})
    return 10 * (time.perf_counter() - start)


def main() -> None:
    """Print a line per command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--images", type=int, default=1000, help="test images of each run")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        runs = runs_of_tables(args.runs)
        start = time.perf_counter()
        make(project, runs, args.images)
        seeds = [str(seed) for seed in sorted({run.seed for run in runs})]
        print(
            f"made {len(runs):,} runs of {args.images:,} images, seeds 1 to {seeds[-1]}, in "
            f"{time.perf_counter() - start:.0f} s",
            flush=True,
        )
        places = ["--output", folder, "--seeds", *seeds]
        for name, words in {
            "results --csv": ["results", folder, "--csv"],
            "tables show all --no-intervals": [
                *("tables", "show", "all", "--no-intervals", *places)
            ],
            "tables show all": ["tables", "show", "all", *places],
        }.items():
            seconds, memory = timed(words)
            print(f"{name:32} {seconds:6.1f} s {memory:6.0f} MB", flush=True)
        print(f"{'a tick of the sweep':32} {tick_milliseconds(runs):6.2f} ms")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(f"(this process: {peak:.0f} MB)")


if __name__ == "__main__":
    main()
