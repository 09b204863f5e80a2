"""A sweep over lambda and seeds on Digits: separate runs, and one sweep on cached views.

    python benchmarks/sweep.py [--json FILE] [--threads 2] [--seeds 1 2 3] [--lambdas ...]

The embedded model and data set. Separate runs are calls of train.py, one after the other, without
the feature store and with fresh augmentation, on all threads. The sweeps start with an empty store
and run side by side on one thread each. Cached views are another protocol than fresh augmentation:
the metrics of both are shown.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, environment, parser_of, report

VIEWS = 10
LAMBDAS = ["0.001", "0.01", "0.05", "0.1", "0.5", "1.0"]


def separate_runs(args: Any, folder: Path) -> None:
    """One call of train.py for each seed and lambda."""
    for seed in args.seeds:
        for lam in args.lambdas:
            command = [sys.executable, "train.py", "--trainer", "CoOp_CMP", "--no-feature-store"]
            command += ["--root", str(folder / "data"), "--seed", seed]
            command += ["--output-dir", str(folder / "separate" / f"{seed}-{lam}")]
            command += ["--dataset-config-file", "configs/datasets/digits.yaml"]
            command += ["--config-file", "configs/trainers/CoOp/glyph.yaml"]
            command += ["DATASET.NUM_SHOTS", args.shots, "TRAINER.CMP.LAMBDA", lam]
            call(command, folder, args.threads, epochs=args.epochs)


def sweep(args: Any, folder: Path, name: str, *options: str) -> None:
    """One sweep over all of them."""
    command = [sys.executable, "-m", "coop_cmp.sweep", "--datasets", "digits", "--fork"]
    command += ["--trainers", "CoOp_CMP", "--shots", args.shots, "--seeds", *args.seeds]
    command += ["--lambdas", *args.lambdas, "--jobs", str(args.threads), "--threads", "1"]
    command += ["--output", str(folder / name), "--data", str(folder / "data")]
    epochs = [f"OPTIM.MAX_EPOCH={args.epochs}"] if args.epochs else []
    call([*command, "--options", *options, *epochs], folder, 1)


def call(command: list[str], folder: Path, threads: int, epochs: str = "") -> None:
    """Run a command of the project with a store of its own."""
    command = command + (["OPTIM.MAX_EPOCH", epochs] if epochs else [])
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    log = folder / "log.txt"
    with open(log, "a") as file:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(threads) | own, stdout=file, stderr=file, check=False
        )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{log.read_text()[-2000:]}")


def metrics(folder: Path) -> dict[str, float]:
    """Number of results below a folder, and the means of their metrics."""
    found = [json.loads(file.read_text()) for file in folder.glob("**/results.json")]
    means = {
        name: statistics.mean(result["metrics"][name] for result in found)
        for name in ("accuracy", "ece")
    }
    return {"runs": len(found), **means}


def main() -> None:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--seeds", nargs="+", default=["1", "2", "3"])
    parser.add_argument("--lambdas", nargs="+", default=LAMBDAS)
    parser.add_argument("--shots", default="8")
    parser.add_argument("--epochs", default="", help="instead of the configured number")
    args = parser.parse_args()
    if args.small:
        args.epochs, args.seeds, args.lambdas = "2", args.seeds[:1], args.lambdas[:2]
    os.chdir(ROOT)
    ways: dict[str, Any] = {
        "separate runs": lambda folder: separate_runs(args, folder),
        "sweep, fresh images": lambda folder: sweep(args, folder, "fresh", "MODEL.FEATURE_STORE="),
        "sweep, cached views": lambda folder: sweep(
            args, folder, "views", f"INPUT.CACHED_VIEWS={VIEWS}"
        ),
    }
    rows: list[dict[str, Any]] = []
    for way, run in ways.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            start = time.perf_counter()
            run(folder)
            seconds = time.perf_counter() - start
            found = metrics(folder)
        faster = rows[0]["seconds"] / seconds if rows else 1.0
        rows.append({"way": way, **found, "seconds": seconds, "faster": faster})
    report(args, rows, views=VIEWS)


if __name__ == "__main__":
    main()
