"""A sweep over lambda and seeds on Digits: separate runs, and sweeps that share their images.

    python benchmarks/sweep.py [--json FILE] [--threads 2] [--rounds 1] [--seeds 1 2 3] ...

The embedded model and data set. Separate runs are calls of train.py, one after the other, without
the feature store, on all threads. The sweeps start with an empty store and run side by side on one
thread each, forked from one process: the second row has the gain from that alone. All rows have the
same augmentation; shared views are encoded once per seed and epoch. GFLOP are those of the image
tower, from the number of images that a run's settings make it encode; the text side is the same in
all rows.
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

import torch
from common import ROOT, count_flops, parser_of, report

from coop_cmp import cli
from coop_cmp.cli import training
from coop_cmp.clip import add_models, load_clip
from coop_cmp.features.loaders import EPOCH_VIEWS

LAMBDAS = ["0.001", "0.01", "0.05", "0.1", "0.5", "1.0"]
# Way: the option of a sweep; none for separate runs.
WAYS = {
    "separate runs": "",
    "sweep, every run for itself": "INPUT.SHARED_VIEWS=False MODEL.FEATURE_STORE=",
    "sweep, shared views": "INPUT.SHARED_VIEWS=True",
}


def measure(args: Any, way: str) -> tuple[float, dict[str, float]]:
    """Seconds that all runs take one way, with an empty store, and their metrics."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data_set(args, str(folder / "data"))  # drawn before the clock starts
        start = time.perf_counter()
        if WAYS[way]:
            sweep(args, folder, WAYS[way])
        else:
            separate_runs(args, folder)
        return time.perf_counter() - start, metrics(folder)


def separate_runs(args: Any, folder: Path) -> None:
    """One call of train.py for each seed and lambda."""
    for seed in args.seeds:
        for lam in args.lambdas:
            place = ["--root", str(folder / "data"), "--no-feature-store", "--seed", seed]
            place += ["--device", args.device]
            place += ["--output-dir", str(folder / "separate" / f"{seed}-{lam}")]
            command = [sys.executable, "train.py", *place, *settings(args)]
            call([*command, "TRAINER.CMP.LAMBDA", lam], folder, args, args.threads)


def settings(args: Any) -> list[str]:
    """The arguments of train.py that all runs share."""
    files = ["--dataset-config-file", "configs/datasets/digits.yaml"]
    files += ["--config-file", "configs/trainers/CoOp/glyph.yaml"]
    epochs = ["OPTIM.MAX_EPOCH", args.epochs] if args.epochs else []
    return ["--trainer", "CoOp_CMP", *files, "DATASET.NUM_SHOTS", args.shots, *epochs]


def sweep(args: Any, folder: Path, option: str) -> None:
    """One sweep over all of them."""
    command = [sys.executable, "-m", "coop_cmp.cli", "sweep", "digits", "--fork"]
    command += ["--trainers", "CoOp_CMP", "--shots", args.shots, "--seeds", *args.seeds]
    command += ["--lambdas", *args.lambdas, "--jobs", str(args.threads), "--threads", "1"]
    command += ["--output", str(folder / "sweep"), "--data", str(folder / "data")]
    command += ["--devices", args.device]
    epochs = [f"OPTIM.MAX_EPOCH={args.epochs}"] if args.epochs else []
    call([*command, "--options", *option.split(), *epochs], folder, args, 1)


def call(command: list[str], folder: Path, args: Any, threads: int) -> None:
    """Run a command of the project with a store of its own."""
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": str(threads)}
    own |= {"CUDA_VISIBLE_DEVICES": ""} if args.device == "cpu" else {}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def metrics(folder: Path) -> dict[str, float]:
    """Number of results below a folder, and the means of their metrics."""
    found = [json.loads(file.read_text())["metrics"] for file in folder.glob("**/results.json")]
    means = {name: statistics.mean(one[name] for one in found) for name in ("accuracy", "ece")}
    return {"runs": len(found), **means}


def data_set(args: Any, root: str = "") -> tuple[Any, Any]:
    """The settings of all runs and their data set, whose pictures are drawn where they lack."""
    cfg = training.setup_cfg(cli.parse(["train", "--root", root, *settings(args)])[1])
    return cfg, training.DATASET_REGISTRY.get(cfg.DATASET.NAME)(cfg)


def images_encoded(args: Any) -> dict[str, int]:
    """How many images all runs of each way encode together."""
    cfg, data = data_set(args)
    batch = cfg.DATALOADER.TRAIN_X.BATCH_SIZE
    images, seeds = len(data.train_x), len(args.seeds)
    steps = cfg.OPTIM.MAX_EPOCH * (images // batch)
    fresh = seeds * len(args.lambdas) * (steps * batch + len(data.test))
    part = max(1, EPOCH_VIEWS // images)  # epochs that are encoded at once
    shared = seeds * -(-cfg.OPTIM.MAX_EPOCH // part) * part * images + len(data.test)
    return dict(zip(WAYS, (fresh, fresh, shared), strict=True))


def flops_per_image() -> int:
    """Arithmetic of the embedded model's image tower."""
    visual = load_clip("GlyphCLIP", "", "fp32").model.visual
    size = visual.image_size
    with torch.no_grad():
        return count_flops(lambda: visual(torch.zeros(1, 3, *size)))


def main() -> None:
    parser = parser_of(__doc__ or "", rounds=1)
    parser.add_argument("--seeds", nargs="+", default=["1", "2", "3"])
    parser.add_argument("--lambdas", nargs="+", default=LAMBDAS)
    parser.add_argument("--shots", default="8")
    parser.add_argument("--epochs", default="", help="instead of the configured number")
    args = parser.parse_args()
    if args.small:
        args.epochs, args.seeds, args.lambdas = "2", args.seeds[:1], args.lambdas[:2]
    os.chdir(ROOT)
    add_models(ROOT / "configs" / "models")
    encoded = images_encoded(args)
    each = flops_per_image()
    rounds = [{way: measure(args, way) for way in WAYS} for _ in range(args.rounds)]
    seconds = {way: min(found[way][0] for found in rounds) for way in WAYS}
    rows = [
        {
            "way": way,
            **rounds[0][way][1],
            "images encoded": encoded[way],
            "GFLOP": encoded[way] * each / 1e9,
            "seconds": seconds[way],
            "faster": seconds["separate runs"] / seconds[way],
        }
        for way in WAYS
    ]
    report(args, rows)


if __name__ == "__main__":
    main()
