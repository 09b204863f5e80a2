"""From a grid (data sets x trainers x backbones x shots x seeds x lambdas) to single runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from coop_cmp.config import flag, integer, number, several, text
from coop_cmp.errors import UserError, closest
from coop_cmp.files import read_yaml
from coop_cmp.runs.run import DEFAULT_FORM, DEFAULT_LAMBDA, Run, is_twin, is_zero_shot

TAG = r"[A-Za-z0-9][A-Za-z0-9.+-]*"
# Suffixes that have another meaning in the names of directories.
SUFFIXES = r"\d+shots|lambda.*|from|base|new|val|ratio|log"

_KEYS = {
    "DATASET.NAME": "datasets",
    "TRAINER.NAME": "trainers",
    "MODEL.BACKBONE.NAME": "backbones",
    "DATASET.NUM_SHOTS": "shots",
    "SEED": "seeds",
    "TRAINER.CMP.LAMBDA": "lambdas",
    "TRAINER.CMP.FORM": "forms",
    "TEST.SPLIT": "validate",
}
"""The axes by their settings: a directory's name tells these, and no option may say otherwise."""
_text = text("", "")
AXES = {
    "trainers": several((), _text, "methods, such as CoOp and CoOp_CMP"),
    "backbones": several(
        (), _text, "CLIP models; default: GlyphCLIP for digits and glyphs, else ViT-B/16"
    ),
    "shots": several((), integer(8, "", low=1), "training images per class"),
    "seeds": several((), integer(1, "", low=0, high=2**32 - 1), "seeds; default: 1 2 3"),
    "lambdas": several((), number(0, "", low=0), "weights of the penalty"),
    "forms": several((), _text, "forms of the penalty: ratio (default), log"),
    "targets": several((), _text, "data sets on which every trained run is tested too"),
}
_KINDS = {**AXES, "datasets": AXES["targets"], "validate": flag(False, ""), "tag": _text}
_ELSEWHERE = {
    "DATASET.SUBSAMPLE_CLASSES": "base2new",
    "DATASET.ROOT": "--data",
    "DEVICE": "--devices",
    "OUTPUT_DIR": "--output",
    "RESUME": "the sweep itself",
}


def default_backbone(dataset: str) -> str:
    """The embedded model for the embedded data sets, the paper's main one for all others."""
    return "GlyphCLIP" if dataset.startswith(("digits", "glyphs")) else "ViT-B/16"


@dataclass(frozen=True)
class Grid:
    """What a sweep's YAML file holds; each field is a list and a single value is a list of one.

    Args:
        backbones: empty means GlyphCLIP for digits and glyphs and ViT-B/16 for everything else.
        targets: data sets on which every trained run is evaluated too.
        validate: evaluate every trained run on its few-shot validation part too.
    """

    datasets: tuple[str, ...]
    trainers: tuple[str, ...] = ("ZeroshotCLIP", "CoOp", "CoOp_CMP")
    backbones: tuple[str, ...] = ()
    shots: tuple[int, ...] = (8,)
    seeds: tuple[int, ...] = (1, 2, 3)
    lambdas: tuple[float, ...] = (DEFAULT_LAMBDA,)
    forms: tuple[str, ...] = (DEFAULT_FORM,)
    targets: tuple[str, ...] = ()
    validate: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    tag: str = ""

    def runs(self) -> list[Run]:
        """Every run once, a training before its evaluations, one whole seed after another."""
        return list(dict.fromkeys(self._runs()))

    def _runs(self) -> Iterator[Run]:
        options = tuple((key, str(value)) for key, value in self.options.items())
        for dataset, shots, seed in product(self.datasets, self.shots, self.seeds):
            backbones = self.backbones or (default_backbone(dataset),)
            for backbone, trainer in product(backbones, self.trainers):
                base = Run(dataset, trainer, backbone, options=options, tag=self.tag)
                if is_zero_shot(trainer):
                    yield base
                    yield from (replace(base, dataset=target) for target in self.targets)
                    continue
                base = replace(base, shots=shots, seed=seed)
                penalties = product(self.lambdas, self.forms) if is_twin(trainer) else [(None,) * 2]
                for lam, form in penalties:
                    run = replace(base, lam=lam, form=form)
                    yield run
                    for target in self.targets:
                        yield replace(run, dataset=target, source=dataset)
                    if self.validate:
                        yield replace(run, split="val")


def _check_tag(tag: str, where: str) -> None:
    """Refuse what would leave the run's place, or read as a part of another run's name."""
    if tag and not re.fullmatch(TAG, tag):
        raise UserError(f"{where}: tag takes letters, digits, '.', '+' and '-', got {tag!r}")
    if re.fullmatch(SUFFIXES, tag):
        raise UserError(f"{where}: the tag {tag!r} reads like a part of other runs' names")


def _check_options(options: Mapping[str, Any], where: str) -> None:
    """Refuse options that say otherwise than the names of the runs' directories."""
    if not isinstance(options, Mapping):
        raise UserError(f"{where}: options should be a mapping of settings, got {options!r}")
    for key in options:
        if axis := _KEYS.get(key):
            raise UserError(f"{where}: give {key} as --{axis} ({axis} in a file), not as an option")
        if key in _ELSEWHERE:
            raise UserError(f"{where}: {key} is set by {_ELSEWHERE[key]}, not by an option")


def parse_grid(entry: Mapping[str, Any], where: str) -> Grid:
    """Check one mapping of a grid file, or of a command line, which gives numbers as text."""
    known = [f.name for f in fields(Grid)]
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in known:
            hint = closest(str(key), known)
            raise UserError(f"{where}: unknown key {key!r}{hint} (known: {', '.join(known)})")
        values[key] = value if key == "options" else _read(key, value)
    if "datasets" not in values:
        raise UserError(f"{where}: names no datasets")
    grid = Grid(**values)
    _check_tag(grid.tag, where)
    _check_options(grid.options, where)
    return grid


def _read(key: str, value: Any) -> Any:
    try:
        found = _KINDS[key].read(value)
    except ValueError:
        raise UserError(f"{key}: expected {_KINDS[key].expected}, got {value!r}") from None
    if found == () and key not in ("backbones", "targets"):
        raise UserError(f"{key}: expected at least one value, got none")
    return found


def read_grids(path: Path, changes: Mapping[str, Any]) -> list[Grid]:
    """Read a grid file: one mapping, or a list of them; ``changes`` take the place of its keys."""
    try:
        content = read_yaml(path)
    except FileNotFoundError:
        names = [file.name for pattern in ("*.yaml", "*.yml") for file in path.parent.glob(pattern)]
        raise UserError(f"datasets: no grid file {path}{closest(path.name, names)}") from None
    entries = content if isinstance(content, list) else [content]
    if not all(isinstance(entry, Mapping) for entry in entries):
        raise UserError(f"{path}: expected keys such as datasets and trainers, got {content!r}")
    return [parse_grid({**entry, **changes}, str(path)) for entry in entries]
