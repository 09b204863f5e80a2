"""One run of a checkout's training script on fake weights and data, in a process of its own."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import sys
import urllib.error
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from coop_cmp.checkout.fakes import fake_dataset, fake_downloads, without_gpu
from coop_cmp.checkout.plugin import hide_twins, prepare, thawed, wrap
from coop_cmp.checkout.runner import describe, import_script, is_own, run_script
from coop_cmp.checkout.twins import twins
from coop_cmp.losses.names import TERMS, split_trainer

SAYS = "coop_cmp --fast: "
NOT_HERE = (FileNotFoundError, ConnectionError, urllib.error.URLError, ImportError)


@dataclass
class Trial:
    """What to run, and what came of it.

    Attributes:
        script: The training script.
        arguments: Of the script, as the user would give them.
        folder: Where it runs: ``here`` looks like the checkout, ``data`` holds fake data.
        fill: Whether to fill in the trainer's settings file, if none is given.
        plain: Without anything of this project but the fakes.
        fast: With ``--fast``.
        weight: Of all terms.
        learned: Digest of all that trains after the training, if it got that far.
        stage: How far it got.
        error: How it failed there, in one line.
        not_here: Whether that is for want of a file, a package, a network or a GPU.
        filled: Arguments that were not given, but filled in.
        said: What ``--fast`` said.
    """

    script: str
    arguments: list[str]
    folder: str
    fill: bool = True
    plain: bool = False
    fast: bool = False
    weight: float = 0.0
    learned: str = ""
    stage: str = "starting"
    error: str = ""
    not_here: bool = False
    filled: dict[str, str] = field(default_factory=dict)
    said: str = ""

    @property
    def command(self) -> str:
        """The command that trains without this project."""
        given = [part for pair in self.filled.items() for part in pair]
        return " ".join(["python", os.path.relpath(self.script), *given, *self.arguments])

    def run(self) -> Trial:
        """Run in a process of its own, which is told all and leaves what came of it."""
        return Trial(**in_process(_trial, Path(self.folder), asdict(self)))

    def fail(self, error: BaseException) -> None:
        """Note the first error; some scripts raise another one in its place."""
        if not self.error:
            text = str(error)
            self.error = describe(error)
            self.not_here = isinstance(error, NOT_HERE) or "NVIDIA" in text or "CUDA" in text


def in_process(target: Callable[..., Any], folder: Path, *args: Any) -> Any:
    """Call a function in another process; return what it returns, which must fit into JSON."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    process = multiprocessing.Process(target=_answer, args=(answer, target, *args))
    process.start()
    process.join()
    if not answer.exists():
        raise RuntimeError(f"the process of the trial ended with code {process.exitcode}")
    return json.loads(answer.read_text())


def _answer(file: Path, target: Callable[..., Any], *args: Any) -> None:
    with (file.parent / "log.txt").open("wb") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    file.write_text(json.dumps(target(*args)))


def trainers_of(script: str) -> dict[str, Any]:
    """Return the trainers that a script brings, those that train first; or why it has none."""
    try:
        trainers = import_script(Path(script))[1]
    except Exception as error:
        return {"error": str(error)}
    training = [*twins(trainers)]
    return {"training": training, "others": [name for name in trainers if name not in training]}


def _trial(given: dict[str, Any]) -> dict[str, Any]:
    trial = Trial(**given)
    folder, script = Path(trial.folder), Path(trial.script)
    os.chdir(folder / "here")
    shutil.rmtree(folder / "output", ignore_errors=True)
    shown = trial.arguments
    if not trial.plain and not is_own(script):
        prepare(trial.fast)
        shown = hide_twins(shown)
    watch(trial)
    sys.argv = [str(script), *shown]
    printed = io.StringIO()
    with without_gpu(), contextlib.redirect_stdout(_Both(printed, sys.stdout)):
        try:
            run_script(script)
            trial.stage = "the end"
        except SystemExit as end:
            if end.code:
                trial.fail(RuntimeError(f"it ends with {end.code}"))
        except BaseException as error:
            trial.fail(error)
    lines = [x.removeprefix(SAYS) for x in printed.getvalue().splitlines() if x.startswith(SAYS)]
    trial.said = lines[-1] if lines else "the text encoder is not called"
    return asdict(trial)


def watch(trial: Trial, image_layers: int | None = None) -> None:
    """Stand at the edges of a script: its arguments, the weights, the data, the trainer built."""
    import dassl.engine
    import dassl.engine.build

    name = split_trainer(value_of("--trainer", trial.arguments))[0]
    folder, home = Path(trial.folder), Path.cwd()
    fill = {"config_file": _config_file(home, name) if trial.fill else "", "seed": "1"}
    pets = Path("configs", "datasets", "oxford_pets.yaml")
    fill["dataset_config_file"] = str(pets) if (home / pets).exists() else ""
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
            trial.stage = "building"
            with thawed(cfg):
                _shorten(cfg, folder / "data", trial.weight)
            fake_dataset(cfg.DATASET.NAME, folder / "data")
            fake_downloads(folder, image_layers)
            try:
                trainer = build(cfg)
            except BaseException as error:
                trial.fail(error)
                raise
            trial.stage = "training"
            trainer.train = _watched(trial, trainer, trainer.train)
            trainer.test = _tested(trial, trainer, trainer.test)
            return trainer

        return build_trainer

    wrap(argparse.ArgumentParser, "parse_args", parsing)
    for module in (dassl.engine, dassl.engine.build):
        wrap(module, "build_trainer", building)


def _shorten(cfg: Any, data: Path, weight: float) -> None:
    """Let a run read the fake data and end after an epoch."""
    cfg.DATASET.ROOT = str(data)
    cfg.DATASET.NAME = cfg.DATASET.NAME or "OxfordPets"
    cfg.OPTIM.MAX_EPOCH, cfg.DATALOADER.NUM_WORKERS = 1, 0
    for term in TERMS.values():
        if term.weight_key and term.node in cfg.TRAINER:
            cfg.TRAINER[term.node][term.weight_key] = weight


def _watched(trial: Trial, trainer: Any, train: Callable[..., Any]) -> Callable[..., Any]:
    def trained(*args: Any) -> Any:
        try:
            result = train(*args)
        except BaseException as error:
            trial.fail(error)
            raise
        trial.learned = trial.learned or _digest(trainer)  # some never test
        return result

    return trained


def _tested(trial: Trial, trainer: Any, test: Callable[..., Any]) -> Callable[..., Any]:
    def tested(*args: Any, **named: Any) -> Any:
        trial.learned, trial.stage = _digest(trainer), "the test"
        result = test(*args, **named)
        trial.stage = "training"
        return result

    return tested


def _digest(trainer: Any) -> str:
    """Return a digest of all weights of a trainer's models that train."""
    digest = hashlib.sha256()
    for name, model in trainer._models.items():
        for key, weight in model.named_parameters():
            if weight.requires_grad:
                digest.update(f"{name}.{key}".encode())
                digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest() if trainer._models else ""


def _config_file(home: Path, trainer: str) -> str:
    """Find a trainer's settings file below ``configs``; for ViT-B/16 if there is a choice."""
    every = sorted(file.relative_to(home) for file in home.glob("configs/**/*.yaml"))
    wanted = trainer.lower()
    found = [f for f in every if f.parent.name.lower() == wanted or f.stem.lower() == wanted]
    return str(next((f for f in found if "vit_b16" in f.name), *found[:1])) if found else ""


def value_of(flag: str, arguments: list[str]) -> str:
    """Return the value of a flag, or nothing."""
    for i, argument in enumerate(arguments):
        if argument == flag and i + 1 < len(arguments):
            return arguments[i + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return ""


def without(arguments: list[str], flag: str) -> list[str]:
    """Return the arguments without a flag and its value."""
    pairs = zip(["", *arguments], arguments, strict=False)
    return [a for before, a in pairs if flag not in (before, a, a.partition("=")[0])]


class _Both(io.TextIOBase):
    """A stream that writes to several."""

    def __init__(self, *streams: Any) -> None:
        self.streams = streams

    def write(self, text: str) -> int:
        for stream in self.streams:
            stream.write(text)
        return len(text)

    def flush(self) -> None:
        for stream in self.streams:
            stream.flush()
