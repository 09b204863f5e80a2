"""``--check``: try every trainer of a checkout, without weights, data or GPU.

The checkout's own script trains each for one step and tests it: as it is, with the term at weight
0, which must learn the same bit for bit, and with the term and ``--fast``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import urllib.error
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coop_cmp.checkout.fakes import REPLACED, stand_at_the_edges, without_gpu, write_data
from coop_cmp.checkout.plugin import hide_twins, prepare
from coop_cmp.checkout.runner import describe, import_script, is_own, run_script
from coop_cmp.checkout.twins import twins
from coop_cmp.errors import UserError, closest
from coop_cmp.losses.names import TERMS, Term, split_trainer, twin_of

SAYS = "coop_cmp --fast: "
NOT_HERE = (FileNotFoundError, ConnectionError, urllib.error.URLError, ImportError)


@dataclass
class Verdict:
    """What a check found out about a trainer."""

    name: str
    works: bool  # whether it and its twin train and are tested
    text: str
    fast: str = ""  # what --fast does
    command: str = ""  # shows how the trainer does without this project

    def __str__(self) -> str:
        more = {"--fast": self.fast, "the command that decides": self.command}
        lines = [f"  {key}: {value}" for key, value in more.items() if value]
        return "\n".join([f"{self.name}: {self.text}", *lines])


@dataclass
class Trial:
    """One run of a script on fake weights and data: what to run, and what came of it."""

    script: Path
    folder: Path  # of the run: "here" looks like the checkout, "data" holds fake data
    arguments: list[str]  # of the script but for the trainer, as the user gives them
    trainer: str  # or its twin
    file: int = 0  # which of the trainer's settings files to name, if the user names none
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


def check(script: Path, only: str, arguments: list[str]) -> Iterator[Verdict]:
    """Try the trainers of a training script.

    Args:
        script: The training script.
        only: A trainer, or its twin with the term to try; empty for all that train, with CMP.
        arguments: All others, as the script's user would give them.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        look_alike(folder / "here")
        write_data(folder / "data")
        training, others = in_process(_trainers_of, folder, script)
        tried = [*training, *(others if is_own(script) else ())]
        plain, term = split_trainer(only)
        if plain and plain not in tried:
            raise UserError(f'there is no trainer "{plain}" that trains{closest(plain, tried)}')
        for trainer in [plain] if plain else tried:
            trial = Trial(script, folder, arguments, trainer)
            if trainer in others:
                yield _verdict_alone(trial)
            else:
                yield _verdict(trial, TERMS[term or "CMP"], others)


def look_alike(here: Path) -> None:
    """Make a folder with the entries of this one, in which new files disturb nobody."""
    here.mkdir()
    for entry in Path.cwd().iterdir():
        os.symlink(entry.resolve(), here / entry.name)


def in_process(call: Callable[..., Any], folder: Path, *args: Any) -> Any:
    """Return what a function returns in another process, whose output goes to a log."""
    with ProcessPoolExecutor(1, initializer=_write_to, initargs=(folder / "log.txt",)) as pool:
        return pool.submit(call, *args).result()


def _write_to(file: Path) -> None:
    with file.open("wb") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())


def _trainers_of(script: Path) -> tuple[list[str], list[str]]:
    """Return the names of a script's trainers: those that can train with a term, and others."""
    trainers = import_script(script)
    variants = twins(trainers)
    return [*variants], [name for name in trainers if name not in (*variants, *variants.values())]


def _run(trial: Trial) -> Trial:
    folder, script = trial.folder, trial.script
    shutil.rmtree(folder / "output", ignore_errors=True)
    os.chdir(folder / "here")
    arguments = ["--trainer", trial.trainer, *trial.arguments]
    trial.fast &= not is_own(script)
    if not trial.plain and not is_own(script):
        prepare(trial.fast)
        arguments = hide_twins(arguments)
    stand_at_the_edges(trial)
    sys.argv = [str(script), *arguments]
    with without_gpu(), contextlib.suppress(BaseException), trial.at(trial.stage):
        try:
            run_script(script)
        except SystemExit as end:
            if end.code:
                sys.stderr.flush()
                last = (folder / "log.txt").read_text(errors="replace").strip().splitlines()[-1:]
                raise RuntimeError(f"exit code {end.code}: {''.join(last)}") from None
    sys.stdout.flush()
    logs = [folder / "log.txt", *(folder / "output").rglob("log.txt*")]  # SkipTuning prints there
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    if trial.error and any(line.startswith(REPLACED) for line in lines):
        trial.not_here, trial.error = True, f"{trial.error}; its data set was replaced as a whole"
    said = [line.removeprefix(SAYS) for line in lines if line.startswith(SAYS)]
    trial.said = said[-1] if said else "the text encoder is not called" * trial.fast
    return trial


def _unchanged(trial: Trial, others: list[str]) -> Trial:
    """Run a trainer with nothing of this project but the fakes."""
    plain = replace(trial, plain=True).run()
    while plain.error and plain.stage == "starting" and "--config-file" in plain.filled:
        trial.file += 1  # some files do not fit their own script
        plain = replace(trial, plain=True).run()
    if plain.learned and plain.not_here:
        for other in others:  # its test may need what zero-shot CLIP leaves
            replace(trial, trainer=other, arguments=["--eval-only", *trial.arguments]).run()
        plain = replace(trial, plain=True).run()
    return plain


def _verdict(trial: Trial, term: Term, others: list[str]) -> Verdict:
    name, twin_name = trial.trainer, twin_of(trial.trainer, term.name)
    plain = _unchanged(trial, others)
    needs_repair = bool(plain.error) and not is_own(trial.script)
    own = trial.run() if needs_repair else plain
    if not own.learned:
        return Verdict(name, False, _failure(plain, own), command=plain.command)
    twin = replace(trial, trainer=twin_name).run()
    if twin.error and not (own.error and twin.learned):
        text = f"{twin_name} fails in {twin.stage}, {name} does not: {twin.error}"
        return Verdict(name, False, text, command=plain.command)
    if term.replaces:
        text = f"works with {term.title}"
    elif own.learned == twin.learned:
        text = "works; lambda 0 is bit-identical"
    elif own.learned == replace(trial, plain=own is plain).run().learned:
        return Verdict(name, False, f"{twin_name} with lambda 0 learns something else")
    else:
        text = f"works; {name} itself differs between two runs, as does lambda 0"
    weighed = replace(trial, trainer=twin_name, weight=0.5, fast=True).run()
    if not weighed.learned:
        text = f"{twin_name} with lambda 0.5 and --fast fails in {weighed.stage}: {weighed.error}"
        return Verdict(name, False, text)
    fast = weighed.said.removeprefix("the text encoder ")
    if not own.error:
        return Verdict(name, True, text, fast)
    text += f"; its test fails without coop_cmp too: {own.error}"
    return Verdict(name, False, text, fast, plain.command)


def _verdict_alone(trial: Trial) -> Verdict:
    """Try a trainer that has no variant: it does not train, or without a cross-entropy."""
    plain = trial.run()
    if plain.error:
        return Verdict(trial.trainer, False, _failure(plain, plain), command=plain.command)
    return Verdict(trial.trainer, True, "works; it has no variants")


def _failure(plain: Trial, own: Trial) -> str:
    """Say why a trainer could not be tried, or that it fails by itself.

    Args:
        plain: Without anything of this project but the fakes.
        own: The same with the repairs of upstream Dassl.
    """
    if not own.error:
        return "not tried: the script does not train it with these arguments"
    if own.stage == "starting":
        return (
            f"not tried: {own.script.name} stops before it builds a trainer: {own.error}; "
            "give the arguments that the checkout's own scripts give"
        )
    if own.not_here:
        return (
            f"not tried: in {own.stage} it needs what is not here: {own.error}; put it there, or "
            "run the command below where it is"
        )
    if not any(a.startswith("--config-file") for a in (*own.filled, *own.arguments)):
        return f"not tried: no --config-file is given or fits; without, {own.error}"
    repaired = "" if own.error == plain.error else f"; with its repairs, {own.error}"
    return (
        f"the checkout's: with these arguments, on six classes, {plain.trainer} fails without "
        f"coop_cmp too, in {plain.stage}: {plain.error}{repaired}"
    )
