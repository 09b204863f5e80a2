"""The hours of the paper's tables on one GPU, by the model of it: nothing here is measured.

    python benchmarks/hours.py [--gpu A100] [--table NAME ...]

The text side of a step is traced as ``benchmarks/device.py`` does it, for the classes and prompts
of each run; the image tower adds its operations. Training images are decoded at a stated rate,
and the views of an epoch once for all runs that share them, as sweeps do. So are test features of
a frozen tower; methods that tune themselves on test images encode 64 views of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch
from common import parser_of, random_clip, report
from device import GPUS, Gpu, Kernels, estimate, trace
from torch.utils.flop_counter import FlopCounterMode

from coop_cmp.datasets.tools.check import known
from coop_cmp.losses.names import split_trainer
from coop_cmp.report.definitions import FIGURE, TITLES, table
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import TEST_TIME, Run

DECODED = 600  # images per second, by all workers together
START = 30  # seconds of a run before its first step and after its last
VIEWS = 64  # of a test image
TRAINED = {"MaPLe": 2, "CLIPFT": 3}  # times a forward pass, where gradients reach the image tower
FORWARD = 1 / 3  # of a pass with its gradients
PRODA = {"end": 2, "middle": 1, "front": 1}  # of the 4 prompts of a step, on average


@cache
def image_flops(backbone: str) -> int:
    """Floating-point operations of an image."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        random_clip(backbone.replace("/", "-")).visual(torch.zeros(1, 3, 224, 224))
    return counter.get_total_flops()


@cache
def text_kernels(method: str, classes: int, batch: int) -> Kernels:
    """The kernels of the text side of a training step."""
    if method == "ProDA":
        parts = [trace("shared", classes, "fp16", False, n, place) for place, n in PRODA.items()]
        return [kernel for part in parts for kernel in part]
    return trace("shared", classes, "fp16", False, batch if method == "CoCoOp" else 1)


class Account:
    """Seconds of runs one after the other, which leave features for those that follow."""

    def __init__(self, project: Project, gpu: Gpu) -> None:
        self.project, self.gpu = project, gpu
        self.sizes = {name: kind.sizes for name, kind in known().items()}
        self.done: set[tuple[object, ...]] = set()
        self.known: dict[tuple[object, ...], tuple[int, int]] = {}

    def seconds(self, run: Run) -> float:
        """The seconds that a run adds."""
        sizes = self.sizes[run.dataset]
        method = split_trainer(run.trainer)[0]
        classes = sizes.classes if run.classes == "all" else -(-sizes.classes // 2)
        per_image = image_flops(run.backbone) / (self.gpu.share * self.gpu.rate["fp16"])
        passes = TRAINED.get(method, 1)
        views = VIEWS if method in TEST_TIME else 1
        total = START + self._images((run.dataset, views), sizes.test * views, per_image, run)
        if method in (*TEST_TIME, "CoCoOp"):  # prompts for each test image, in large batches
            tuned = estimate(text_kernels("CoOp", classes, 1), self.gpu, "fp16")["device"]
            total += sizes.test * tuned * (FORWARD if method == "CoCoOp" else 1 + FORWARD)
        if run.shots and not run.source and run.split == "test" and not run.calibrator:
            batch, epochs = self.schedule(run)
            images = classes * run.shots
            steps = max(1, images // batch)
            text = estimate(text_kernels(method, classes, batch), self.gpu, "fp16")["seconds"]
            for epoch in range(epochs):
                key = (run.dataset, run.classes, run.shots, run.seed, epoch)
                total += steps * text + self._images(key, images, passes * per_image, run)
        return total

    def schedule(self, run: Run) -> tuple[int, int]:
        """Batch size and epochs."""
        key = ("schedule", split_trainer(run.trainer)[0], run.dataset, run.backbone, run.shots)
        if key not in self.known:
            settings = self.project.identity(run).settings
            batch = settings["DATALOADER.TRAIN_X.BATCH_SIZE"]
            self.known[key] = batch, settings["OPTIM.MAX_EPOCH"]
        return self.known[key]

    def _images(self, key: tuple[object, ...], count: int, each: float, run: Run) -> float:
        """Seconds to read and encode images, unless somebody has left their features."""
        key = (*key, run.backbone)
        if split_trainer(run.trainer)[0] not in TRAINED:
            if key in self.done:
                return 0.0
            self.done.add(key)
        return count * max(each, 1 / DECODED)


def hours(runs: Iterable[Run], project: Project, gpu: Gpu) -> dict[str, float]:
    """Runs, their hours, and those of them that are ProDA's."""
    account, found = Account(project, gpu), {"runs": 0, "hours": 0.0, "of it ProDA": 0.0}
    for run in runs:
        seconds = account.seconds(run)
        found["runs"] += 1
        found["hours"] += seconds / 3600
        found["of it ProDA"] += seconds / 3600 * run.trainer.startswith("ProDA")
    return found


def main() -> None:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--gpu", choices=list(GPUS), default="A100")
    parser.add_argument("--table", nargs="+", default=[*TITLES, FIGURE])
    args = parser.parse_args()
    project, every, rows = Project(Path("output")), {}, []
    for name in args.table:
        runs = dict.fromkeys(table(name).runs())
        every |= runs
        rows.append({"table": name, **hours(runs, project, GPUS[args.gpu])})
    rows.append({"table": "all together", **hours(every, project, GPUS[args.gpu])})
    report(args, rows, gpu=args.gpu)


if __name__ == "__main__":
    main()
