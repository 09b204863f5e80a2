"""What the benchmarks share: random models of real sizes, timing, memory and tables."""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.model import CLIP, CustomTextCLIP
from tabulate import tabulate
from torch.utils.flop_counter import FlopCounterMode

from coop_cmp.files import write_json

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # of a clone that is not installed
VOCABULARY = 49408
SMALL_TEXT = {"width": 64, "heads": 2, "layers": 2}


def parser_of(description: str, rounds: int = 0) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have; ``rounds`` is the default of its own."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to this file")
    parser.add_argument("--page", metavar="FILE", help="also put the rows into this page's table")
    parser.add_argument(
        "--threads",
        type=int,
        default=2,
        help="CPU threads (default 2); with 1, processor time is measured, which other programs "
        "on the machine disturb less",
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or mps")
    if rounds:
        text = f"timed repetitions, of which the best counts (default {rounds})"
        parser.add_argument("--rounds", type=int, default=rounds, help=text)
    parser.add_argument("--small", action="store_true", help="tiny towers: a test of the benchmark")
    return parser


def prepare(args: argparse.Namespace) -> None:
    """Choose the threads, and the GPU that is measured."""
    torch.set_num_threads(args.threads)
    if args.device.startswith("cuda:"):
        torch.cuda.set_device(args.device)


def alone(args: argparse.Namespace, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, where nothing has left memory to be used again."""
    with ProcessPoolExecutor(1, get_context("spawn"), prepare, (args,)) as pool:
        return pool.submit(function, *arguments).result()


def random_clip(name: str, small: bool = False, image_tower: bool = True) -> Any:
    """A frozen model of open_clip's architecture ``name`` with random weights."""
    config = open_clip.get_model_config(name)
    if small:
        config["text_cfg"].update(SMALL_TEXT)
    if small or not image_tower:
        config["vision_cfg"] = {"image_size": 32, "patch_size": 16, "width": 64, "layers": 1}
    torch.manual_seed(0)
    config["text_cfg"]["vocab_size"] = VOCABULARY  # CLIP's tokenizer serves all
    kind = CustomTextCLIP if config.pop("custom_text", False) else CLIP
    model = kind(**{"quick_gelu": True, **config})
    return model.eval().requires_grad_(False)


def class_names(count: int) -> list[str]:
    """Names of ImageNet classes, evenly spread over its list of 1,000."""
    names = open_clip.IMAGENET_CLASSNAMES
    return list(names[:: max(1, len(names) // count)][:count])


def now() -> float:
    """Seconds of the clock; of the processor if there is one thread. Work on a GPU is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
        return time.perf_counter()
    if torch.backends.mps.is_available():
        torch.mps.synchronize()
        return time.perf_counter()
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def in_turns(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Best seconds of each function, taken in turns so that a busy moment hits all of them."""
    best = dict.fromkeys(functions, math.inf)
    for _ in range(rounds):
        for name, function in functions.items():
            start = now()
            function()
            best[name] = min(best[name], now() - start)
    return best


def count_flops(function: Callable[[], object]) -> int:
    """Floating-point operations of the matrix products and convolutions of one call.

    The product of queries and keys inside torch's attention on a CPU is not counted: below 5 %.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # a whole layer in one, which counts as nothing
    try:
        with FlopCounterMode(display=False) as counter:
            function()
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    return counter.get_total_flops()


def matrix_rate(rows: int = 1024, width: int = 512, device: str = "cpu") -> float:
    """Floating-point operations per second of a large product, as a tower's MLP has them."""
    x, weight = (torch.randn(n, width, device=device) for n in (rows, 4 * width))
    seconds = in_turns({"product": lambda: torch.nn.functional.linear(x, weight)}, 20)["product"]
    return 2 * rows * width * 4 * width / seconds


def peak_bytes(function: Callable[[], object]) -> int:
    """By how much a call raises the memory of the GPU, or of this process (Linux), at most."""
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    Path("/proc/self/clear_refs").write_text("5")  # start the high-water mark anew
    before = _status("VmRSS")
    function()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return 1024 * int(line.split()[1])
    raise LookupError(field)


def report(args: argparse.Namespace, rows: list[dict[str, Any]], **more: Any) -> None:
    """Print a table of the rows, and write them with what else was measured to ``--json``."""
    print(tabulate(rows, headers="keys", floatfmt=".4g", tablefmt="github", missingval="-"))
    for name, value in more.items():
        print(f"{name.replace('_', ' ')}: {value}")
    machine = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": args.threads,
        "device": args.device,
    }
    if args.json:
        write_json(args.json, {"machine": machine, "rows": rows, **more})
    if args.page:
        write_table(Path(args.page), Path(sys.argv[0]).name, rows)


def write_table(page: Path, script: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Put rows into the table that follows a benchmark's command in a page.

    A row takes the place of the one that has the same first two cells.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    command = next(i for i, line in enumerate(lines) if f"benchmarks/{script}" in line)
    first = next(i for i in range(command, len(lines)) if lines[i].startswith("|")) + 2
    last = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    columns = [name.strip() for name in lines[first - 2].strip("|").split("|")]
    cells = [[shown(name, row.get(name, "")) for name in columns] for row in rows]
    table = [*lines[first:last], *(f"| {' | '.join(row)} |" for row in cells)]
    lines[first:last] = {tuple(line.split("|")[1:3]): line for line in table}.values()
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def shown(column: str, value: Any) -> str:
    """A cell of a page's table."""
    if isinstance(value, str):
        return value
    if column == "faster":
        return f"{value:.1f}x"
    if "differ" in column:
        return f"{value:.1e}" if value else "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
