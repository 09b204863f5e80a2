"""Sweeps whose runs are those of a small program that writes results as the real one does."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import ForkProcess
from pathlib import Path
from unittest.mock import patch

from coop_cmp import cli
from coop_cmp.cli import options
from coop_cmp.files import write_json
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.process import run_here
from coop_cmp.sweep.slurm import attach

# Behaves as the file "behaviour.json" beside it says, by the run's seed: a list of what to do at
# each call, the last for all later calls. Adds a line to "calls.txt" per call.
FAKE_TRAIN = """
import argparse, json, os, signal, sys, time
from pathlib import Path
from coop_cmp.cli.train import add_arguments
from coop_cmp.config.resolve import pairs
from coop_cmp.errors import UserError
from coop_cmp.runs.identity import Identity, claim
from coop_cmp.runs.records import REQUIRED_METRICS, write_results
def main():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert sys.argv[1] == "train"
    args = parser.parse_args(sys.argv[2:])
    opts = pairs(args.opts)
    out, here = Path(args.output_dir), Path(__file__).parent
    with open(here / "calls.txt", "a") as file:
        file.write(f"{out}\\n")
    calls = (here / "calls.txt").read_text().splitlines().count(str(out))
    steps = json.loads((here / "behaviour.json").read_text()).get(str(args.seed), ["good"])
    step = steps[min(calls, len(steps)) - 1]
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    print("epoch [1/2] of", step, "threads", os.environ.get("OMP_NUM_THREADS"),
          "on", args.device, "of", repr(gpu))
    if args.eval_only and not (Path(args.model_dir) / "results.json").exists():
        sys.exit("evaluated before it was trained")
    note = here / "identities" / f"{out.relative_to(here / 'output')}.json"
    identity = Identity.from_record(json.loads(note.read_text()))
    try:
        claim(out, identity, args.redo)
    except UserError as error:
        print(error)
        sys.exit(2)
    while step.startswith("wait") and not (here / "go").exists(): time.sleep(0.05)
    if step in ("crash", "wait and crash", f"crash on {gpu}"):
        raise RuntimeError("the loss exploded")
    if step == "memory" and (calls == 1 or list(here.glob("active*"))):
        raise MemoryError("CUDA out of memory")
    if step == "user error": print("error: no such folder"); sys.exit(2)
    if step == f"data error on {out.relative_to(here / 'output').parts[0]}": sys.exit(65)
    if step == "io error": sys.exit(74)
    if step == "die": os.kill(os.getpid(), signal.SIGKILL)
    if step == "hang": time.sleep(60)
    if step == "slow":
        (here / f"active{args.seed}").touch()
        time.sleep(0.7)
        (here / f"active{args.seed}").unlink()
    if step == "edit": (here / "configs/trainers/CoOp/glyph.yaml").write_text("OPTIM: {LR: 0.5}")
    if step == "nothing": return
    twin = args.trainer.endswith("_CMP")
    accuracy = 0.5 + args.seed / 100 + 0.1 * twin + 0.01 * ("TEST.SPLIT" in opts)
    model = Path(args.model_dir, "model.txt") if args.eval_only else out / "model.txt"
    if not args.eval_only: model.write_text(f"learned at call {calls}")
    results = {
        **identity.as_record(),
        "weights": {"name": "none", "digest": "0"}, "checkpoint": model.read_text(),
        "images": "val" if "TEST.SPLIT" in opts else "test", "labels": "0", "files": {},
        "metrics": {name: accuracy / (i + 1) for i, name in enumerate(REQUIRED_METRICS)},
        "sizes": {"classes": 10, "train": 80, "test": 40 if "TEST.SPLIT" in opts else 100,
                  "trainable": int(not args.trainer.startswith("Zeroshot"))},
        "seconds": {"total": 2.0, "test": 1.0}, "machine": {}, "versions": {}, "commit": None,
        "fit": {}, "notes": [],
    }
    path = out / "results.json"
    write_results(path, results)
    if step == "garbage": path.write_text("{")
    if step == "late crash": raise RuntimeError("the driver went away")
    if step == "late hang": time.sleep(60)

if __name__ == "__main__":
    main()
"""


def behave(root: Path, steps: dict[int, list[str]]) -> None:
    (root / "behaviour.json").write_text(json.dumps(steps))


class FakeProject(Project):
    """A project that tells the fake what its runs are, which the real program finds out itself."""

    def command(self, run: Run) -> list[str]:
        self._note(run)
        return super().command(run)

    def check(self, runs: Iterable[Run]) -> None:
        runs = list(runs)
        super().check(runs)
        for run in runs:
            self._note(run)

    def _note(self, run: Run) -> None:
        write_json(
            self.configs.parent / "identities" / f"{run}.json", self.identity(run).as_record()
        )


def project_of(root: Path, data: str = "") -> Project:
    """The output directory below ``root``, with the configs there."""
    return FakeProject(root / "output", data, root / "configs")


def settings_of(root: Path) -> Settings:
    """Launch settings by which the fake is run."""
    return Settings(program=(str(root / "train.py"),))


@contextmanager
def pretended(root: Path) -> Iterator[None]:
    """Let commands use ``train.py`` and ``configs`` of a folder, and look at Slurm often."""
    with (
        patch.object(attach, "POLLS", (0.5, 2.0)),
        patch.object(options, "Project", partial(FakeProject, configs=root / "configs")),
        patch.object(options, "Settings", partial(Settings, program=settings_of(root).program)),
    ):
        yield


def main(words: Sequence[str], command: str = "sweep") -> int:
    """Call a command like that; ``--output`` names a folder below the root."""
    with pretended(Path(words[words.index("--output") + 1]).parent):
        return cli.dispatch([command, *words])


def arguments(root: Path, *more: str, datasets: Sequence[str] = ("digits",)) -> list[str]:
    words = [*datasets, "--output", str(root / "output"), "--shots", "8", "--trainers", "CoOp"]
    return [*words, "--jobs", "2", "--no-fork", *more]


def calls(root: Path) -> list[str]:
    file = root / "calls.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return sorted(Path(line).relative_to(root / "output").as_posix() for line in lines)


class StartedSweep(ForkProcess):
    """A sweep in a process group of its own: a fork of this one, as the imports take seconds."""

    def __init__(self, root: Path, *more: str, nohup: bool = False) -> None:
        self.file = root / f"sweep-{time.monotonic_ns()}.txt"
        call = [__file__, str(root), str(nohup), "sweep", *arguments(root, *more)]
        with self.file.open("wb") as file:
            super().__init__(target=run_here, args=(call, dict(os.environ), file))
            self.start()

    def output(self) -> str:
        """What it has printed up to now."""
        return self.file.read_text()

    def end(self, seconds: float = 120) -> tuple[int, str]:
        """Its exit code and output, once it has ended."""
        self.join(seconds)
        assert self.exitcode is not None, "it did not end in time"
        return self.exitcode, self.output()


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


if __name__ == "__main__":
    os.setsid()
    # Tests that run in the background may have inherited an ignored Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[2] == "True":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with pretended(Path(sys.argv[1])):
        sys.exit(cli.main(sys.argv[3:]))
