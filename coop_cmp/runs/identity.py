"""What a run is: every setting that can change its numbers, and digests to compare them by.

``train.py`` notes the identity of a run in its directory before anything else (`claim`), stores it
with the results, and whoever asks whether a run is done, is the same as another or may be averaged
with it compares identities and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from coop_cmp.config import METHODS, SETTINGS, flatten, is_free
from coop_cmp.errors import UserError
from coop_cmp.files import read_file, write_json
from coop_cmp.losses.names import TERMS, split_trainer

RUN_FILE = "run.json"
CALIBRATOR_FILE = "calibrator.safetensors"
CALIBRATOR = "CALIBRATOR."  # how the keys of a post-hoc calibrator begin
_MISSING = "(not set)"


@dataclass(frozen=True)
class Identity:
    """The settings of a run that can change a number.

    Attributes:
        settings: Values by key, such as ``OPTIM.LR``.
        training: For an evaluation the run that is evaluated; None for a run that learns itself.
        epoch: Of that run, if not the last or best.
    """

    settings: Mapping[str, Any]
    training: Identity | None = None
    epoch: int | None = None

    @cached_property
    def digest(self) -> str:
        """The same for runs that must give the same numbers."""
        return self._digest("digest", self.settings)

    @cached_property
    def group(self) -> str:
        """The same for runs that differ in their seed alone."""
        return self._digest("group", self._without("SEED"))

    @cached_property
    def pair(self) -> str:
        """The same for a method with and without a term or a calibrator, whatever the seed."""
        plain = self._without("SEED", CALIBRATOR, *self.term)
        return self._digest("pair", {**plain, "TRAINER.NAME": self._trainer[0]})

    @property
    def term(self) -> dict[str, Any]:
        """The trainer's name and the settings of its training-time term, by key."""
        term = self._trainer[1]
        node = f"TRAINER.{TERMS[term].node}." if term else "TRAINER.NAME"
        return {k: v for k, v in self.settings.items() if k.startswith((node, "TRAINER.NAME"))}

    @property
    def _trainer(self) -> tuple[str, str | None]:
        return split_trainer(self.settings["TRAINER.NAME"])

    def _without(self, *beginnings: str) -> dict[str, Any]:
        return {k: v for k, v in self.settings.items() if not k.startswith(beginnings)}

    def _digest(self, kind: str, settings: Mapping[str, Any]) -> str:
        of = self.training
        tested = [of.dataset, getattr(of, kind)] if of else None
        text = json.dumps([settings, tested, self.epoch], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def dataset(self) -> str:
        """The name of the data set for people: that of a folder of one's own, or the registered."""
        return self.settings.get("DATASET.TITLE") or self.settings["DATASET.NAME"]

    def as_record(self) -> dict[str, Any]:
        """As it stands in ``run.json`` and ``results.json``."""
        return {
            "settings": dict(self.settings),
            "training": self.training and self.training.as_record(),
            "epoch": self.epoch,
            "digest": self.digest,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Identity:
        """Read what :meth:`as_record` gave.

        Raises:
            ValueError: It is not whole, or its digest is not that of its settings.
        """
        try:
            learned = record["training"]
            training = None if learned is None else cls.from_record(learned)
            identity = cls(record["settings"], training, record["epoch"])
            is_whole = identity.digest == record["digest"]
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"its identity is incomplete ({error})") from error
        if not is_whole:
            raise ValueError("its settings are not those of its digest; they were changed by hand")
        return identity

    def differences(self, wanted: Identity) -> list[str]:
        """What of this is not as wanted, in words."""
        keys = sorted(self.settings.keys() | wanted.settings.keys())
        pairs = [
            (key, self.settings.get(key, _MISSING), wanted.settings.get(key, _MISSING))
            for key in keys
        ]
        words = [f"{key} is {was!r}, not {now!r}" for key, was, now in pairs if was != now]
        if (self.training, self.epoch) != (wanted.training, wanted.epoch):
            words.append("it tests what another training has learned")
        return words


def canonical(value: Any) -> Any:
    """A setting as JSON knows it: lists for tuples, whole floats as integers."""
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def identify(
    cfg: Mapping[str, Any], training: Identity | None = None, epoch: int | None = None
) -> Identity:
    """Return the identity of a run with these settings, a tree or by key, with all defaults.

    Of a declared trainer (see :mod:`coop_cmp.config`) the declared settings count, without the
    nodes of other methods and terms; of one from elsewhere, all settings do.
    """
    settings = flatten(cfg)
    method, term = split_trainer(str(settings["TRAINER.NAME"]))
    is_declared = method in METHODS
    nodes = [METHODS[method].node, TERMS[term].node if term else ""] if is_declared else []

    def counts(key: str) -> bool:
        parts = key.split(".")
        is_of_another = parts[0] == "TRAINER" and len(parts) > 2 and parts[1] not in nodes
        return not is_declared or (key in SETTINGS and not is_of_another)

    kept = {k: canonical(v) for k, v in settings.items() if counts(k) and not is_free(k)}
    return Identity(kept, training, epoch)


def calibrated(identity: Identity, calibrator: str, labels: str) -> Identity:
    """Return the identity of a run whose predictions a calibrator has changed afterwards."""
    own = {f"{CALIBRATOR}NAME": calibrator, f"{CALIBRATOR}SOURCE": labels}
    return replace(identity, settings={**identity.settings, **own})


def read_identity(directory: str | Path) -> Identity | None:
    """The identity of the run in a directory; None if it holds no run.

    Raises:
        UserError: There is a record, but its settings are unknown.
    """
    path = Path(directory, RUN_FILE)
    if not path.exists():
        return None
    try:
        return Identity.from_record(json.loads(read_file(path).decode("utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not the record of a run ({error})") from error


def read_command(directory: str | Path) -> list[str]:
    """Return the words of the command that began the run in a directory; none if it is unknown."""
    try:
        words = json.loads(read_file(Path(directory, RUN_FILE)).decode("utf-8"))["command"]
        return [str(word) for word in words]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def claim(
    directory: str | Path, identity: Identity, redo: bool = False, elsewhere: bool = False
) -> bool:
    """Note in a directory which run it holds, and by which command; refuse that of another run.

    Args:
        redo: Remove the run that is there, whatever its settings, and begin anew.
        elsewhere: In a checkout of others, whose own training leaves models without a note.

    Returns:
        Whether there was no such note before.

    Raises:
        UserError: The directory holds another run, or models of which no settings are known.
    """
    folder = Path(directory)
    if redo:
        clear(folder)
    remedy = "remove it" if elsewhere else "--redo to replace it"
    advice = f"choose another --output-dir, or {remedy}"
    found = read_identity(folder)
    if found is not None:
        if words := "; ".join(found.differences(identity)):
            raise UserError(f'"{folder}" holds a run with other settings ({words}); {advice}')
        return False
    if left := [path.name for path in _of_a_run(folder) if path.is_file() or not elsewhere]:
        raise UserError(f'"{folder}" holds {left[0]} of a run of unknown settings; {advice}')
    write_json(folder / RUN_FILE, {**identity.as_record(), "command": _command()})
    return True


def _command() -> list[str]:
    """The words with which this process was called; of a forked run, its own."""
    if sys.argv[1:2] == ["train"]:
        return ["coop-cmp", *sys.argv[1:]]
    is_own = sys.orig_argv[-len(sys.argv[1:]) :] == sys.argv[1:]
    return sys.orig_argv if is_own else [sys.executable, *sys.argv]


@contextmanager
def claimed(directory: str | Path, identity: Identity, redo: bool = False) -> Iterator[None]:
    """Claim a directory for what is done meanwhile.

    Where that fails before anything is there to keep, the directory is free again: whoever corrects
    a mistake in the settings can use it.
    """
    is_new = claim(directory, identity, redo)
    try:
        yield
    except BaseException:
        if is_new and not _of_a_run(Path(directory)):
            Path(directory, RUN_FILE).unlink(missing_ok=True)
        raise


def clear(directory: Path) -> None:
    """Remove a run and leave everything else: its results first, then its models and records."""
    for path in [*_of_a_run(directory), directory / RUN_FILE, directory / "tensorboard"]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _of_a_run(directory: Path) -> list[Path]:
    """What a run has left in its directory, beside its log."""
    names = ("results.json", "outcomes.npz", "predictions.npz", CALIBRATOR_FILE)
    files = [directory / name for name in names]
    models = {file.parent for file in directory.glob("*/model*.pth.tar*")}
    return [*(file for file in files if file.exists()), *sorted(models)]
