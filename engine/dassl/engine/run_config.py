"""One output directory, one set of settings."""

from __future__ import annotations

import glob
import os
from typing import Any

import yaml
from dassl.config import get_cfg_default
from dassl.utils.files import atomic_write
from yacs.config import CfgNode

# Settings that do not change what a run computes, or where it may differ from machine to machine.
_FREE = {
    "OUTPUT_DIR",
    "RESUME",
    "VERBOSE",
    "USE_CUDA",
    "DEVICE",
    "DATALOADER.NUM_WORKERS",
    "TRAIN.PRINT_FREQ",
    "TRAIN.CHECKPOINT_FREQ",
    "DATASET.ROOT",
    "MODEL.FEATURE_STORE",
    "MODEL.TEXT_BUDGET_MB",
}
_MISSING = "(not set)"


def refuse_other_run(cfg: CfgNode) -> None:
    """Raise FileExistsError if the output directory holds a run with other settings."""
    path = os.path.join(cfg.OUTPUT_DIR, "config.yaml")
    pattern = os.path.join(glob.escape(cfg.OUTPUT_DIR), "*", "model*.pth.tar*")
    if not os.path.isfile(path) or not glob.glob(pattern):
        return
    try:
        with open(path, encoding="utf-8") as file:
            old = _flatten(yaml.safe_load(file))
    except (OSError, yaml.YAMLError, AttributeError) as error:
        raise FileExistsError(
            f'the settings of the run in "{cfg.OUTPUT_DIR}" cannot be read from its config.yaml '
            f"({error}); choose another --output-dir or delete it"
        ) from error
    new, default = _leaves(cfg), _leaves(get_cfg_default())
    changes = []
    for key in sorted((old.keys() | new.keys()) - _FREE):
        was, now = (settings.get(key, default.get(key, _MISSING)) for settings in (old, new))
        if was != now:
            changes.append(f"{key} was {was!r} and is {now!r}")
    if changes:
        raise FileExistsError(
            f'the output directory "{cfg.OUTPUT_DIR}" holds a run with other settings '
            f"({'; '.join(changes)}); choose another --output-dir or delete it"
        )


def write_config(cfg: CfgNode) -> None:
    """Write ``config.yaml`` to the output directory, which is made if need be."""
    try:
        with atomic_write(os.path.join(cfg.OUTPUT_DIR, "config.yaml")) as file:
            file.write(cfg.dump().encode())
    except OSError as error:
        raise OSError(
            f'cannot write to the output directory "{cfg.OUTPUT_DIR}": '
            f"{error.strerror or error}; choose another --output-dir"
        ) from error


def _leaves(cfg: CfgNode) -> dict[str, Any]:
    # Through YAML, so that tuples and lists compare as they will after a run is read back.
    return _flatten(yaml.safe_load(cfg.dump()))


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            leaves.update(_flatten(value, f"{prefix}{key}."))
        else:
            leaves[prefix + key] = value
    return leaves
