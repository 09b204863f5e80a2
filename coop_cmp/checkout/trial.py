"""One run of a checkout's training script on fake weights and data, in a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import sys
import urllib.error
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from coop_cmp.checkout.fakes import REPLACED, fake_dataset, fake_downloads, without_gpu
from coop_cmp.checkout.plugin import hide_twins, prepare, thawed, wrap
from coop_cmp.checkout.runner import describe, import_script, is_own, run_script
from coop_cmp.checkout.twins import twins
from coop_cmp.losses.names import TERMS, WEIGHT, split_trainer

SAYS = "coop_cmp --fast: "
NOT_HERE = (FileNotFoundError, ConnectionError, urllib.error.URLError, ImportError)


@dataclass
class Trial:
    """What to run, and what came of it."""

    script: Path
    folder: Path  # of the run: "here" looks like the checkout, "data" holds fake data
    arguments: list[str]  # of the script but for the trainer, as the user gives them
    trainer: str  # or its twin
    file: int = 0  # which of the trainer's settings files to name, if the user names none
    data: str = "oxford_pets"  # which settings file of a data set, likewise
    plain: bool = False  # without anything of this project but the fakes
    fast: bool = False
    weight: float = 0.0  # of all terms

    filled: dict[str, str] = field(default_factory=dict)  # arguments that were not given
    stage: str = "starting"  # how far it got
    learned: str = ""  # digest of all that trains, after the training
    error: str = ""  # how it failed, in one line
    not_here: bool = False  # whether that is for want of a file, a package, a network or a GPU
    said: str = ""  # by --fast

    @property
    def command(self) -> str:
        """The command that trains without this project."""
        filled = [part for pair in self.filled.items() for part in pair]
        given = ["--trainer", self.trainer, *filled, *self.arguments]
        return " ".join(["python", os.path.relpath(self.script), *given])

    @contextlib.contextmanager
    def at(self, stage: str) -> Iterator[None]:
        """Note how far it got, and the first error; some scripts raise another one instead."""
        before, self.stage = self.stage, stage
        try:
            yield
        except BaseException as error:
            if not self.error:
                self.error, text = describe(error), str(error)
                words = ("NVIDIA", "CUDA", "does not exist")
                self.not_here = isinstance(error, NOT_HERE) or any(word in text for word in words)
            raise
        self.stage = before

    def run(self) -> Trial:
        """Run in a process of its own; return what came of it."""
        return in_process(_run, self.folder, self)


def in_process(call: Callable[..., Any], folder: Path, *args: Any) -> Any:
    """Return what a function returns in another process, whose output goes to a log."""
    with ProcessPoolExecutor(1, initializer=_write_to, initargs=(folder / "log.txt",)) as pool:
        return pool.submit(call, *args).result()


def _write_to(file: Path) -> None:
    with file.open("wb") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())


def trainers_of(script: Path) -> tuple[list[str], list[str]]:
    """Return the names of a script's trainers: those that train, and others."""
    trainers = import_script(script)
    training = [*twins(trainers)]
    return training, [name for name in trainers if name not in training]


def _run(trial: Trial) -> Trial:
    folder, script = trial.folder, trial.script
    shutil.rmtree(folder / "output", ignore_errors=True)
    os.chdir(folder / "here")
    arguments = ["--trainer", trial.trainer, *trial.arguments]
    trial.fast &= not is_own(script)
    if not trial.plain and not is_own(script):
        prepare(trial.fast)
        arguments = hide_twins(arguments)
    watch(trial)
    sys.argv = [str(script), *arguments]
    with without_gpu(), contextlib.suppress(BaseException), trial.at(trial.stage):
        try:
            run_script(script)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"it ends with {end.code}") from None
    sys.stdout.flush()
    logs = [folder / "log.txt", *(folder / "output").rglob("log.txt*")]  # SkipTuning prints there
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    if trial.error and any(line.startswith(REPLACED) for line in lines):
        trial.not_here, trial.error = True, f"{trial.error}; its data set was replaced as a whole"
    said = [line.removeprefix(SAYS) for line in lines if line.startswith(SAYS)]
    trial.said = said[-1] if said else "the text encoder is not called" * trial.fast
    return trial


def watch(trial: Trial, image_layers: int | None = None) -> None:
    """Stand at the edges of a script: its arguments, the weights, the data, the trainer built."""
    import dassl.engine
    import dassl.engine.build

    folder, own = trial.folder, is_own(trial.script)
    data = Path("configs", "datasets", "digits.yaml" if own else f"{trial.data}.yaml")
    fill = {"dataset_config_file": str(data) if data.exists() else "", "seed": "1"}
    fill["config_file"] = [*settings_files(split_trainer(trial.trainer)[0]), ""][trial.file]
    force = {"output_dir": str(folder / "output"), "no_feature_store": True}

    def parsing(parse: Callable[..., Any]) -> Callable[..., Any]:
        def parse_args(parser: Any, *args: Any) -> Any:
            found = parse(parser, *args)
            for key, value in fill.items():
                if value and getattr(found, key, value) in ("", None, -1):
                    setattr(found, key, int(value) if key == "seed" else value)
                    trial.filled[f"--{key.replace('_', '-')}"] = value
            vars(found).update({key: value for key, value in force.items() if key in found})
            return found

        return parse_args

    def building(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def build_trainer(cfg: Any) -> Any:
            with trial.at("building"):
                with thawed(cfg):
                    cfg.DATASET.ROOT = str(folder / "data")
                    cfg.DATASET.NAME = cfg.DATASET.NAME or "OxfordPets"
                    cfg.OPTIM.MAX_EPOCH, cfg.DATALOADER.NUM_WORKERS = 1, 0
                    for term in TERMS.values():
                        if not term.replaces and term.node in cfg.TRAINER:
                            cfg.TRAINER[term.node][WEIGHT] = trial.weight
                fake_dataset(cfg.DATASET.NAME, folder / "data")
                fake_downloads(folder, image_layers)
                trainer = build(cfg)
            trial.stage = "training"
            train, test = trainer.train, trainer.test

            def trained(*args: Any) -> Any:
                with trial.at("training"):
                    result = train(*args)
                trial.learned = trial.learned or _digest(trainer)  # some never test
                return result

            def tested(*args: Any, **named: Any) -> Any:
                trial.learned = _digest(trainer)
                with trial.at("the test"):
                    return test(*args, **named)

            trainer.train, trainer.test = trained, tested
            return trainer

        return build_trainer

    wrap(argparse.ArgumentParser, "parse_args", parsing)
    for module in (dassl.engine, dassl.engine.build):
        wrap(module, "build_trainer", building)


def _digest(trainer: Any) -> str:
    """Return a digest of all weights of a trainer's models that train."""
    digest = hashlib.sha256()
    for name, model in trainer._models.items():
        for key, weight in model.named_parameters():
            if weight.requires_grad:
                digest.update(f"{name}.{key}".encode())
                digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest() if trainer._models else ""


def settings_files(trainer: str, home: Path = Path()) -> list[str]:
    """Find a trainer's settings files below ``configs``: for GlyphCLIP, for ViT-B/16, others."""

    def is_its(name: str) -> bool:
        return name.lower().replace("_", "") == trainer.lower().replace("_", "")

    files = [f.relative_to(home) for f in home.glob("configs/**/*.yaml")]
    files = [f for f in files if is_its(f.parent.name) or is_its(f.stem)]
    files.sort(key=lambda f: ("glyph" not in f.name, "vit_b16" not in f.name, f))
    return [*map(str, files)]
