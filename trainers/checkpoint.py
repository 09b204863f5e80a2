"""Read what a method has learned from checkpoints of this and other codebases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dassl.utils import load_checkpoint
from torch import Tensor, nn

from coop_cmp.errors import UserError
from coop_cmp.features.store import checksum, digest
from coop_cmp.runs.identity import read_identity

# Buffers that belong to a class list; the CoOp codebase stores them beside what was learned.
CLASS_BOUND = ("token_prefix", "token_suffix", "token_midfix")
OWN_PREFIX = "prompt_learner."


def load_learned(
    learner: nn.Module,
    directory: str,
    epoch: int | None,
    folders: tuple[str, ...],
    unused: tuple[str, ...] = (),
    of_this_run: bool = True,
) -> None:
    """Load a learner's parameters, whatever class list they were learned on.

    Args:
        learner: The module to fill.
        directory: Of the run that was trained.
        epoch: The epoch to load; None for the best one if there is one, else the last.
        folders: Names to look for in the directory, the first one found is taken.
        unused: Beginnings of names to leave out.
        of_this_run: Refuse a checkpoint of another run than the directory's.

    Raises:
        UserError: There is no such checkpoint, or it is of another method or size.
    """
    path = _find(Path(directory), epoch, folders)
    checkpoint = load_checkpoint(str(path))
    check_checkpoint(path, checkpoint, directory if of_this_run else None)
    state = _learned(checkpoint["state_dict"], unused)
    own = learner.state_dict()
    wrong = [k for k in own if k not in state or state[k].shape != own[k].shape]
    wrong += [k for k in state if k not in own]
    if wrong:
        raise UserError(
            f'"{path}" was not learned by this method with these settings: {wrong[0]} is '
            f"{_shape(state, wrong[0])}, expected {_shape(own, wrong[0])}"
        )
    learner.load_state_dict(state)
    print(f'Loaded "{path}" (epoch {checkpoint.get("epoch", "unknown")})')


def check_checkpoint(path: str | Path, checkpoint: Any, directory: str | None) -> None:
    """Refuse what is no checkpoint, or that of another run than the one in the directory.

    Checkpoints of other codebases do not say of which run they are.
    """
    state = checkpoint.get("state_dict") if isinstance(checkpoint, Mapping) else None
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise UserError(
            f'"{path}" is no checkpoint: it has no "state_dict" of tensors; delete it, or choose '
            "another directory"
        )
    identity = read_identity(directory) if directory else None
    run = checkpoint.get("run")
    if identity is not None and run not in (None, identity.digest):
        raise UserError(
            f'"{path}" is a checkpoint of another run than the one in {directory}; delete it, or '
            "choose another directory"
        )


def learned_digest(learner: nn.Module) -> str:
    """A digest of what a learner has learned."""
    return digest({name: checksum(value) for name, value in learner.state_dict().items()})


def _find(directory: Path, epoch: int | None, folders: tuple[str, ...]) -> Path:
    paths = [
        directory / name / (f"model.pth.tar-{epoch}" if epoch else _newest(directory / name))
        for name in folders
    ]
    for path in paths:
        if path.is_file():
            return path
    raise UserError(f'no model at "{paths[0]}": check --model-dir and --load-epoch')


def _newest(folder: Path) -> str:
    """The file name of the best model if there is one, else of the last epoch."""
    if (folder / "model-best.pth.tar").is_file():
        return "model-best.pth.tar"
    endings = [path.name.rsplit("-", 1)[1] for path in folder.glob("model.pth.tar-*")]
    epochs = [int(ending) for ending in endings if ending.isdigit()]
    return f"model.pth.tar-{max(epochs)}" if epochs else "model.pth.tar"


def _learned(state: dict[str, Any], unused: tuple[str, ...]) -> dict[str, Any]:
    """The entries of a state dict that a learner may have.

    MaPLe's own code saves the whole of CLIP, with the learner's entries under a prefix.
    """
    if any(key.startswith(OWN_PREFIX) for key in state):
        state = {
            key.removeprefix(OWN_PREFIX): value
            for key, value in state.items()
            if key.startswith(OWN_PREFIX)
        }
    return {
        key: value
        for key, value in state.items()
        if not key.endswith(CLASS_BOUND) and not key.startswith(unused)
    }


def _shape(state: dict[str, Tensor], key: str) -> str:
    return str(list(state[key].shape)) if key in state else "absent"
