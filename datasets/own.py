"""A folder of one's own images as a data set that runs know by name."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import open_clip
import yaml
from dassl.config import get_cfg_default
from tabulate import tabulate

from coop_cmp.clip.prompts import clean, template_layout
from coop_cmp.config import read
from coop_cmp.config.resolve import extend_cfg, read_file
from coop_cmp.errors import DataError, UserError
from coop_cmp.files import atomic_write

from .base import data_folder
from .files import read_lines
from .folder import folder_digest, read_folder, split_digest
from .splits import same_in_a_prompt

TEMPLATE = "a photo of a {}."


def own_name(folder: Path) -> str:
    """Return the name of a folder as a data set, which is also the name of its runs' directory.

    A name that would look like an option, a hidden file or a word of the command line, or that a
    terminal cannot show, is changed and gets a digest, so that no two folders' names collide.
    """
    name = folder.expanduser().resolve().name
    safe = re.sub(r"^[-.]|[\x00-\x1f\x7f\ud800-\udfff]", "_", name) or "_"
    if name == safe != "all":
        return name
    return f"{safe}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"


def name_folder(cfg: Any) -> None:
    """Set name and digest of the folder of images that settings name, unless they hold a digest."""
    node = cfg.DATASET
    if node.NAME != "ImageFolder" or node.CONTENT:
        return
    try:
        folder = data_folder(cfg, "")
        node.CONTENT = folder_digest(folder, node.ALLOW_NEW_SPLIT)
    except UserError as error:
        raise DataError(str(error)) from error
    node.TITLE = node.TITLE or own_name(Path(folder))


def add_folder(folder: Path, config: Path, template: str = "", names: str = "") -> None:
    """Write the config file of a folder of images, and print how its classes are called.

    The file can be edited; it is written again only if a template or names are given, or if the
    folder has moved, and keeps the other settings in it.

    Args:
        folder: Class folders, or ``train`` and ``test`` (and ``val``) above them.
        config: The file to write.
        template: The prompt, with one {} for the class name.
        names: A file with ``<class folder> <name>`` on each line.

    Raises:
        UserError: It has no class folders, or too few images.
    """
    folder = folder.expanduser().resolve()
    tree, known = _read(config)
    root = known.get("ROOT") or str(folder)
    if root != str(folder) and Path(root).exists():
        raise UserError(
            f"{config} is of another folder, {root}; rename yours or choose another output"
        )
    defaults = {"TITLE": config.parent.name, "TEMPLATE": TEMPLATE, "CLASSNAMES": []}
    node = {**defaults, "ALLOW_NEW_SPLIT": True, **known, "NAME": "ImageFolder"}
    split = read_folder(str(folder), node["ALLOW_NEW_SPLIT"])
    classes = [name for _, name in sorted({(label, name) for _, label, name in split.train})]
    if len(classes) < 2:
        raise UserError(f"{folder}: expected two classes or more, found {classes[0]!r} alone")
    node |= {"ROOT": str(folder), "CONTENT": split_digest(str(folder), split)}
    if template:
        node["TEMPLATE"] = read("DATASET.TEMPLATE", template, "--template")
    if names:
        node["CLASSNAMES"] = read_names(Path(names), classes)
    if len(node["CLASSNAMES"]) not in (0, len(classes)):
        raise UserError(
            f"{config}: DATASET.CLASSNAMES must name the {len(classes)} classes of {folder}, got "
            f"{len(node['CLASSNAMES'])} names"
        )
    # What every run would refuse is refused before it is stored.
    called = node["CLASSNAMES"] or classes
    if twice := same_in_a_prompt(called):
        raise UserError(
            f"{config}: the classes {twice[0]!r} and {twice[1]!r} read the same in a prompt; name "
            "them apart with --names"
        )
    try:
        template_layout(node["TEMPLATE"], called, open_clip.tokenize)
    except UserError as error:
        raise UserError(f"{config}: {error}") from error
    if node != known:
        with atomic_write(config) as file:
            file.write(yaml.safe_dump({**tree, "DATASET": node}, allow_unicode=True).encode())
    print(describe(config, classes, node["CLASSNAMES"], node["TEMPLATE"]))


def read_names(path: Path, classes: list[str]) -> list[str]:
    """The names of the class folders, from a file with ``<class folder> <name>`` lines."""
    found: dict[str, str] = {}
    for line in read_lines(path):
        fitting = [folder for folder in classes if line.startswith((f"{folder} ", f"{folder}\t"))]
        if not fitting:
            raise UserError(f"{path}: {line!r} does not begin with a class folder and a blank")
        folder = max(fitting, key=len)
        if folder in found:
            raise UserError(f"{path}: names the class of the folder {folder!r} twice")
        found[folder] = line[len(folder) :].strip()
    if missing := [folder for folder in classes if folder not in found]:
        raise UserError(f"{path}: names no class for the folder {missing[0]!r}")
    return [found[folder] for folder in classes]


def describe(config: Path, classes: list[str], names: list[str], template: str) -> str:
    """Return a line with folder, name and prompt for each class."""
    pairs = zip(classes, names or classes, strict=True)
    rows = [("", folder, name, template.format(clean(name))) for folder, name in pairs]
    title = f"Data set {config.parent.name}: {len(rows)} classes; names and prompt are in {config}"
    header = ("", "folder", "name", "prompt")
    return f"{title}\n{tabulate(rows, header, tablefmt='plain', disable_numparse=True)}"


def _read(config: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of the config file, and of its node DATASET; every key and value is checked."""
    if not os.path.lexists(config):
        return {}, {}
    if not config.is_file():
        raise UserError(f"{config}: not a file; remove it, and it is written anew")
    try:
        cfg = get_cfg_default()
        extend_cfg(cfg)
        settings = read_file(cfg, str(config))
    except UserError as error:
        raise UserError(f"{error}; correct the file or remove it") from error
    if (name := settings.get("DATASET.NAME", "ImageFolder")) != "ImageFolder":
        raise UserError(f"{config}: DATASET.NAME must be ImageFolder, got {name!r}")
    own = [key for key in settings if key.startswith("DATASET.")]
    tree = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
    return tree, {key.removeprefix("DATASET."): settings[key] for key in own}
