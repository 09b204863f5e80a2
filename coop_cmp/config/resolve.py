"""The configuration: from settings, files and options to the tree that Dassl works with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dassl.config import get_cfg_default
from yacs.config import CfgNode

from coop_cmp.config.defaults import image_defaults, run_defaults
from coop_cmp.config.registry import SETTINGS, add_settings, assign, flatten, read
from coop_cmp.config.setting import literal
from coop_cmp.errors import UserError, closest
from coop_cmp.files import read_yaml

YAML = (".yaml", ".yml")


def resolve(
    root: Path,
    files: Mapping[str, str],
    given: Mapping[str, Any],
    options: Mapping[str, Any],
) -> CfgNode:
    """Return all settings of a run.

    How images are prepared depends on the backbone's weights, unless it is given. The bundled
    model's file comes first, then the data set's, the method's, flags and options. A method without
    a file takes its own defaults.

    Args:
        root: The checkout, whose ``configs/models`` hold the bundled models.
        files: ``--dataset-config-file`` and ``--config-file``, each with a path or nothing.
        given: Settings by key, from the flags of a command line.
        options: Settings by key.

    Raises:
        UserError: A file cannot be read, or a key or a value is wrong.
    """
    if twice := sorted(given.keys() & options.keys()):
        raise UserError(f"{twice[0]} is given twice, as a flag and as an option")
    cfg = get_cfg_default()
    extend_cfg(cfg)
    layers: dict[str, Any] = {}
    for option, path in files.items():
        if path:
            layers |= read_file(cfg, path, option)
    layers |= {key: read_value(cfg, key, value) for key, value in {**given, **options}.items()}
    backbone, weights = (layers.get(f"MODEL.BACKBONE.{k}", "") for k in ("NAME", "WEIGHTS"))
    models = root / "configs" / "models"
    defaults = image_defaults(backbone, weights, models)
    if not files.get("--config-file"):
        defaults |= run_defaults(layers.get("TRAINER.NAME", ""))
    if (own := models / f"{backbone}.yaml").is_file():
        defaults |= read_file(cfg, str(own))
    layers = defaults | layers
    for key, value in layers.items():
        assign(cfg, key, value)
    cfg.OPTIM.MAX_EPOCH = epochs(flatten(cfg), options)
    if cfg.SEED < 0:  # there is no seed for views to depend on, and the record says so
        cfg.INPUT.VIEW_SEED = "stream"
    return cfg


def extend_cfg(cfg: CfgNode) -> None:
    """Add the settings that CoOp's train.py adds, those of this project and of every method."""
    add_settings(cfg)
    cfg.TEST.EVALUATOR = SETTINGS["TEST.EVALUATOR"].default


def read_file(cfg: CfgNode, path: str, option: str = "--config-file") -> dict[str, Any]:
    """Return the settings of a yaml file by key; a mistake in it is reported with its path."""
    if Path(path).suffix not in YAML:
        raise UserError(f'{option}: expected a {" or ".join(YAML)} file, got "{path}"')
    try:
        tree = read_yaml(path)
    except FileNotFoundError:
        wrong = Path(path)
        while not wrong.parent.is_dir():
            wrong = wrong.parent
        names = [f.name for f in wrong.parent.glob("*") if f.is_dir() or f.suffix in YAML]
        raise UserError(f'{option}: no file "{path}"{closest(wrong.name, names)}') from None
    if not isinstance(tree, dict | None):
        raise UserError(f"{path}: expected nodes such as OPTIM, got a {type(tree).__name__}")
    return {key: read_value(cfg, key, value, path) for key, value in _walk(cfg, tree or {})}


def pairs(options: Sequence[str]) -> dict[str, str]:
    """Return ``KEY VALUE KEY VALUE ...`` as a mapping."""
    if len(options) % 2:
        raise UserError(f"options come in pairs KEY VALUE; there is no value for {options[-1]}")
    found = dict(zip(options[::2], options[1::2], strict=True))
    if twice := [key for key in found if options[::2].count(key) > 1]:
        raise UserError(f"the option {twice[0]} is given twice")
    return found


def read_value(cfg: CfgNode, key: str, value: Any, where: str = "") -> Any:
    """Return a value as the kind of its key: as declared, or else as the tree's own value is."""
    if key in SETTINGS or key not in (known := flatten(cfg)):
        return read(key, value, where)
    # Settings of other people's methods, which are in the tree and not declared here.
    value, kind = literal(value), type(known[key])
    if (kind is float and type(value) is int) or {kind, type(value)} == {list, tuple}:
        value = kind(value)
    if type(value) is not kind and known[key] is not None:
        prefix = f"{where}: " if where else ""
        raise UserError(f"{prefix}{key} must be a {kind.__name__}, got {value!r}")
    return value


def epochs(settings: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Return OPTIM.MAX_EPOCH: an option, or what the tables have for the data set or shots."""
    if "OPTIM.MAX_EPOCH" in options:
        return settings["OPTIM.MAX_EPOCH"]
    for name, number in settings["OPTIM.DATASET_EPOCHS"]:
        if name == settings["DATASET.NAME"]:
            return number
    table = sorted(settings["OPTIM.SHOT_EPOCHS"])
    shots = settings["DATASET.NUM_SHOTS"]
    fitting = [number for listed, number in table if 0 < shots <= listed]
    last = table[-1][1] if table else settings["OPTIM.MAX_EPOCH"]
    return fitting[0] if fitting else last


def _walk(node: Any, tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a nested mapping, as deep as the nodes of the configuration go."""
    for name, value in tree.items():
        inner = node.get(name)
        if isinstance(value, dict) and isinstance(inner, CfgNode):
            yield from _walk(inner, value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
