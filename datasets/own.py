"""A folder of one's own images as a data set that runs know by name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import open_clip
import yaml

from coop_cmp.clip.prompts import template_layout
from coop_cmp.config import read
from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write

from .files import IMAGE_SUFFIXES

TEMPLATE = "a photo of a {}."
FEWEST = 4  # images of a class that can be split into training, validation and test


def own_name(folder: Path) -> str:
    """Return the name of a folder as a data set."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.expanduser().resolve().name).strip("-.")


def add_folder(folder: Path, config: Path, template: str = "", names: str = "") -> None:
    """Write the config file of a folder of images, and print how its classes are called.

    The file can be edited; it is written again only if a template or names are given, or if the
    folder has moved.

    Args:
        folder: Class folders, or ``train`` and ``test`` (and ``val``) above them.
        config: The file to write.
        template: The prompt, with one {} for the class name.
        names: A file with ``<class folder> <name>`` on each line.

    Raises:
        UserError: It has no class folders, or too few images.
    """
    folder = folder.expanduser().resolve()
    classes = class_folders(folder)
    node = _read(config)
    if node and Path(node["ROOT"]).exists() and node["ROOT"] != str(folder):
        raise UserError(
            f"{config} is of another folder, {node['ROOT']}; rename yours or choose another output"
        )
    if template or not node:
        node["TEMPLATE"] = read("DATASET.TEMPLATE", template or TEMPLATE, "--template")
    if names or not node.get("CLASSNAMES"):
        node["CLASSNAMES"] = read_names(Path(names), classes) if names else []
    node |= {"NAME": "ImageFolder", "ROOT": str(folder), "ALLOW_NEW_SPLIT": True}
    # A prompt that is too long is refused before it is stored.
    template_layout(node["TEMPLATE"], node["CLASSNAMES"] or classes, open_clip.tokenize)
    with atomic_write(config) as file:
        file.write(yaml.safe_dump({"DATASET": node}, allow_unicode=True).encode())
    print(describe(config, classes, node["CLASSNAMES"], node["TEMPLATE"]))


def class_folders(folder: Path) -> list[str]:
    """The class folders, each with images, in the order of their labels."""
    parts = [folder / part for part in ("train", "test") if (folder / part).is_dir()]
    if len(parts) == 1:
        raise UserError(f"{folder} has {parts[0].name}/ alone; train/ and test/ are both needed")
    classes = _folders(parts[0] if parts else folder)
    if len(classes) < 2:
        raise UserError(
            f"{folder}: expected a folder for each class (or train/ and test/ above them), found "
            f"{len(classes)} folders; see docs/datasets.md"
        )
    for place in parts or [folder]:
        for name in _folders(place):
            files = (place / name).iterdir()
            count = sum(file.suffix.lower() in IMAGE_SUFFIXES for file in files)
            if count < (1 if parts else FEWEST):
                few = (
                    f"only {count} images, of which a split cannot be made"
                    if count
                    else "no images"
                )
                raise UserError(f"{place / name}: {few}; see docs/datasets.md")
    return classes


def read_names(path: Path, classes: list[str]) -> list[str]:
    """The names of the class folders, from a file with ``<class folder> <name>`` lines."""
    found: dict[str, str] = {}
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"--names {path}: not a text file in UTF-8 ({error.reason})") from error
    for line in filter(None, map(str.strip, text.splitlines())):
        fitting = [folder for folder in classes if line.startswith((f"{folder} ", f"{folder}\t"))]
        if not fitting:
            raise UserError(f"{path}: {line!r} does not begin with a class folder and a blank")
        folder = max(fitting, key=len)
        found[folder] = line[len(folder) :].strip()
    if missing := [folder for folder in classes if folder not in found]:
        raise UserError(f"{path}: names no class for the folder {missing[0]!r}")
    return [found[folder] for folder in classes]


def describe(config: Path, classes: list[str], names: list[str], template: str) -> str:
    """Return a line with folder, name and prompt for each class."""
    rows = list(zip(classes, names or classes, strict=True))
    wide = [max(map(len, column)) for column in zip(*rows, ("folder", "name"), strict=True)]
    title = f"Data set {config.parent.name}: {len(rows)} classes"
    lines = [f"{title}; names and prompt are in {config}"]
    lines += [f"  {'folder':{wide[0]}}  {'name':{wide[1]}}  prompt"]
    lines += [
        f"  {folder:{wide[0]}}  {word:{wide[1]}}  {template.format(word.replace('_', ' '))}"
        for folder, word in rows
    ]
    return "\n".join(lines)


def _folders(place: Path) -> list[str]:
    with os.scandir(place) as entries:
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    return [name for name in names if name != "split_fewshot"]  # which runs write


def _read(config: Path) -> dict[str, Any]:
    try:
        return dict(yaml.safe_load(config.read_text(encoding="utf-8"))["DATASET"])
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, TypeError, KeyError) as error:
        raise UserError(f"{config}: not the settings of a data set ({error}); remove it") from error
