"""Calibrators on disk: what a calibrator has found, and which run it belongs to, in one file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from coop_cmp.calibrate.affine import Affine
from coop_cmp.calibrate.dac import DAC
from coop_cmp.calibrate.onevsrest import Histogram, Isotonic
from coop_cmp.calibrate.sals import scale_to_zero_shot
from coop_cmp.calibrate.temperature import Temperature
from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write
from coop_cmp.runs.identity import CALIBRATOR_FILE, Identity

Calibrator = Callable[..., np.ndarray]
KINDS: dict[str, Callable[..., Calibrator]] = {
    "Temperature": Temperature,
    "Affine": Affine,
    "Histogram": Histogram,
    "Isotonic": Isotonic,
    "DAC": DAC,
    "SaLS": lambda: scale_to_zero_shot,
}
_UNREADABLE = (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError)


@dataclass(frozen=True)
class StoredCalibrator:
    """A calibrator and the model it is for.

    Attributes:
        calibrator: Maps logits [N, C] to calibrated ones; with ``zero_shot``, two such arrays.
        run: The run it was made of: a training, or the test of one.
        checkpoint: What that run's model had learned.
        classnames: The C classes, if it has values for each of them.
        zero_shot: The test of zero-shot CLIP whose logits of the same images it takes.
        zero_shot_weights: Digest of the weights of that test.
    """

    calibrator: Calibrator
    run: Identity
    checkpoint: str | None
    classnames: list[str] | None = None
    zero_shot: Identity | None = None
    zero_shot_weights: str | None = None

    def refuse_other(self, identity: Identity, checkpoint: str | None) -> None:
        """Refuse a trained model other than the one that was calibrated."""
        if self.run.training is None and (words := self.run.differences(identity)):
            raise UserError(f"the calibrator calibrates another run ({words[0]})")
        if self.run.training and (self.run.training, self.run.epoch) != (identity, None):
            raise UserError("the calibrator calibrates the test of another run")
        if self.checkpoint != checkpoint:
            raise UserError(
                "the calibrator is of another model than the one in the run's directory; calibrate "
                "the run again (--redo)"
            )


def write_calibrator(folder: str | Path, stored: StoredCalibrator) -> None:
    """Write a calibrator to the folder of a calibrated run."""
    values = vars(stored.calibrator)  # of SaLS, a function, there are none
    arrays = {k: np.ascontiguousarray(v) for k, v in values.items() if isinstance(v, np.ndarray)}
    about = {
        "kind": type(stored.calibrator).__name__ if values else "SaLS",
        "values": {k: v for k, v in values.items() if k not in arrays},
        "run": stored.run.as_record(),
        "checkpoint": stored.checkpoint,
        "classnames": stored.classnames,
        "zero_shot": stored.zero_shot and stored.zero_shot.as_record(),
        "zero_shot_weights": stored.zero_shot_weights,
    }
    text = json.dumps(about, ensure_ascii=False)
    with atomic_write(Path(folder, CALIBRATOR_FILE)) as file:
        file.write(save(arrays, {"about": text, "digest": content_digest(text, arrays)}))


def content_digest(about: str, arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of all that a calibrator's file holds."""
    parts = [about.encode()]
    for name, array in sorted(arrays.items()):
        parts += [f"{name} {array.dtype} {array.shape}".encode(), array.tobytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def read_calibrator(path: str | Path) -> StoredCalibrator:
    """Read a calibrator.

    Args:
        path: The file, or the folder of the calibrated run that holds it.

    Raises:
        UserError: There is none, or it is incomplete.
    """
    path = Path(path, CALIBRATOR_FILE) if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise UserError(
            f"{path}: there is no calibrator; coop-cmp calibrate makes one of a run "
            "(--redo where an older version has calibrated it)"
        )
    try:
        with safe_open(path, "np") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if about["digest"] != content_digest(about["about"], arrays):
            raise ValueError("it was changed after it was written")
        return _restore(json.loads(about["about"]), arrays)
    except _UNREADABLE as error:
        raise UserError(f"{path}: not a stored calibrator ({error})") from error


def _restore(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> StoredCalibrator:
    names = about["classnames"]
    if not all(isinstance(name, str) for name in names or []):
        raise ValueError("its class names are no text")
    if (about["kind"] == "SaLS") != bool(about["zero_shot"]):
        raise ValueError("SaLS, and nothing else, takes zero-shot logits")
    if any(len(array) != len(names) for array in arrays.values()):
        raise ValueError("its values are not for the classes that it names")
    return StoredCalibrator(
        KINDS[about["kind"]](**about["values"], **arrays),
        Identity.from_record(about["run"]),
        about["checkpoint"],
        names,
        about["zero_shot"] and Identity.from_record(about["zero_shot"]),
        about["zero_shot_weights"],
    )
