"""``--check``: try every trainer of a checkout, without weights, data or GPU.

The checkout's own script trains each for one step and tests it: as it is, with the term at weight
0, which must learn the same bit for bit, and with the term and ``--fast``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coop_cmp.checkout.fakes import write_data
from coop_cmp.checkout.runner import is_own
from coop_cmp.checkout.trial import Trial, in_process, trainers_of, value_of, without
from coop_cmp.errors import UserError, closest
from coop_cmp.losses.names import TERMS, split_trainer, twin_of


@dataclass
class Verdict:
    """What a check found out about a trainer.

    Attributes:
        name: The trainer's.
        works: Whether it and its twin train and are tested.
        text: How its twin does.
        fast: What ``--fast`` does.
        command: The command that decides whose failure it is, if there is one.
    """

    name: str
    works: bool
    text: str
    fast: str = ""
    command: str = ""

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.text}"]
        lines += [f"  --fast: {self.fast}"] * bool(self.fast)
        return "\n".join(
            [*lines, *[f"  the command that decides: {self.command}"] * bool(self.command)]
        )


def check(script: Path, arguments: list[str]) -> Iterator[Verdict]:
    """Try the trainers of a training script.

    Args:
        script: The training script.
        arguments: As its user would give them; ``--trainer`` names the only trainer to try, or its
            twin with the term to try.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _look_alike(folder / "here")
        write_data(folder / "data")
        found = in_process(trainers_of, folder, str(script))
        if "error" in found:
            raise UserError(found["error"])
        asked, training = value_of("--trainer", arguments), found["training"]
        plain, term = split_trainer(asked)
        if plain and plain not in training:
            raise UserError(f'there is no trainer "{plain}" that trains{closest(plain, training)}')
        for trainer in [plain] if plain else training:
            checker = _Checker(script, arguments, folder, trainer, term or "CMP", found["others"])
            yield checker.verdict()


class _Checker:
    """The trials of one trainer."""

    def __init__(
        self,
        script: Path,
        arguments: list[str],
        folder: Path,
        name: str,
        term: str,
        others: list[str],
    ) -> None:
        self.script, self.folder, self.name = script, folder, name
        self.term, self.twin, self.others = TERMS[term], twin_of(name, term), others
        self.rest, self.fill = without(arguments, "--trainer"), True

    def trial(self, name: str, *more: str, **settings: bool | float) -> Trial:
        """Run the script with a trainer."""
        arguments = ["--trainer", name, *more, *self.rest]
        place = str(self.script), arguments, str(self.folder), self.fill
        return Trial(*place, **settings).run()

    def verdict(self) -> Verdict:
        """Try the trainer and its twin."""
        plain = baseline = self.trial(self.name, plain=True)
        if plain.stage == "starting" and "--config-file" in plain.filled:
            self.fill = False  # some files do not fit their own script
            plain = baseline = self.trial(self.name, plain=True)
        if baseline.learned and baseline.not_here:
            for other in self.others:  # its test may need what zero-shot CLIP leaves
                self.trial(other, "--eval-only", plain=True)
            plain = baseline = self.trial(self.name, plain=True)
        if plain.error and not is_own(self.script):
            baseline = self.trial(self.name)  # it may need the repairs of upstream Dassl
        if not baseline.learned:
            return self.failure(plain)
        twin = self.trial(self.twin)
        if twin.error and not (baseline.error and twin.learned):
            text = f"{self.twin} fails in {twin.stage}: {twin.error}; {self.name} does not"
            return Verdict(self.name, False, text, command=plain.command)
        if self.term.replaces:
            text = f"works with {self.term.title}"
        elif baseline.learned == twin.learned:
            text = "works; lambda 0 is bit-identical"
        elif baseline.learned == self.trial(self.name, plain=baseline is plain).learned:
            return Verdict(self.name, False, f"{self.twin} with lambda 0 learns something else")
        else:
            text = f"works; {self.name} itself differs between two runs, as does lambda 0"
        weighed = self.trial(self.twin, weight=0.5, fast=True)
        if not weighed.learned:
            text = f"{self.twin} with lambda 0.5 and --fast fails in {weighed.stage}: "
            return Verdict(self.name, False, text + weighed.error)
        fast = weighed.said.removeprefix("the text encoder ")
        if baseline.error:
            text += f"; its test fails without coop_cmp too: {baseline.error}"
            return Verdict(self.name, False, text, fast, plain.command)
        return Verdict(self.name, True, text, fast)

    def failure(self, plain: Trial) -> Verdict:
        """Say why a trainer could not be tried, or that it fails by itself."""
        if plain.stage == "starting":
            text = (
                f"not tried: {self.script.name} stops before it builds a trainer: {plain.error}; "
                "give the arguments that the checkout's own scripts give"
            )
        elif plain.not_here:
            text = f"not tried: in {plain.stage} it needs what is not here: {plain.error}"
        elif not plain.error:
            text = "not tried: the script does not train it with these arguments"
        else:
            text = f"the checkout's: fails without coop_cmp too, in {plain.stage}: {plain.error}"
        return Verdict(self.name, False, text, command=plain.command)


def _look_alike(here: Path) -> None:
    """Make a folder with the entries of this one, in which new files disturb nobody."""
    here.mkdir()
    for entry in Path.cwd().iterdir():
        os.symlink(entry.resolve(), here / entry.name)
