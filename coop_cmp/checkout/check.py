"""``--check``: try every trainer of a checkout, without weights, data or GPU.

The checkout's own script trains each for one step and tests it: as it is, with the term at weight
0, which must learn the same bit for bit, and with the term and ``--fast``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from coop_cmp.checkout.fakes import write_data
from coop_cmp.checkout.runner import is_own
from coop_cmp.checkout.trial import Trial, in_process, trainers_of
from coop_cmp.errors import UserError, closest
from coop_cmp.losses.names import TERMS, Term, split_trainer, twin_of


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
        training, others = in_process(trainers_of, folder, script)
        plain, term = split_trainer(only)
        if plain and plain not in training:
            raise UserError(f'there is no trainer "{plain}" that trains{closest(plain, training)}')
        for trainer in [plain] if plain else training:
            trial = Trial(script, folder, arguments, trainer)
            yield _verdict(trial, TERMS[term or "CMP"], others)


def look_alike(here: Path) -> None:
    """Make a folder with the entries of this one, in which new files disturb nobody."""
    here.mkdir()
    for entry in Path.cwd().iterdir():
        os.symlink(entry.resolve(), here / entry.name)


def _unchanged(trial: Trial, others: list[str]) -> tuple[Trial, Trial, str]:
    """Run a trainer with nothing of this project but the fakes.

    Returns:
        What to run its twin with, what came of it, and which data set it fails on.
    """
    plain = replace(trial, plain=True).run()
    while plain.error and plain.stage == "starting" and "--config-file" in plain.filled:
        trial.file += 1  # some files do not fit their own script
        plain = replace(trial, plain=True).run()
    pets, elsewhere = plain.filled.get("--dataset-config-file"), ""
    if pets and plain.error and plain.stage == "building" and not plain.not_here:
        second = replace(trial, data="caltech101")  # LASP's class of OxfordPets lacks an attribute
        tried = replace(second, plain=True).run()
        if not tried.error:
            elsewhere = f"; tried on Caltech101, as {pets} fails: {plain.error}"
            trial, plain = second, tried
    if plain.learned and plain.not_here:
        for other in others:  # its test may need what zero-shot CLIP leaves
            replace(trial, trainer=other, arguments=["--eval-only", *trial.arguments]).run()
        plain = replace(trial, plain=True).run()
    return trial, plain, elsewhere


def _verdict(trial: Trial, term: Term, others: list[str]) -> Verdict:
    name, twin_name = trial.trainer, twin_of(trial.trainer, term.name)
    trial, plain, elsewhere = _unchanged(trial, others)
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
        return Verdict(name, True, text + elsewhere, fast)
    text += f"; its test fails without coop_cmp too: {own.error}"
    return Verdict(name, False, text, fast, plain.command)


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
        return f"not tried: in {own.stage} it needs what is not here: {own.error}"
    if not any(a.startswith("--config-file") for a in (*own.filled, *own.arguments)):
        return f"not tried: no --config-file is given or fits; without, {own.error}"
    repaired = "" if own.error == plain.error else f"; with its repairs, {own.error}"
    return (
        f"the checkout's: with these arguments, on six classes, {plain.trainer} fails without "
        f"coop_cmp too, in {plain.stage}: {plain.error}{repaired}"
    )
