"""Compare what is on disk with what a data set must be."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY
from dassl.utils import read_image

from coop_cmp import CONFIGS
from coop_cmp.config.resolve import resolve
from coop_cmp.errors import UserError, closest

from ..base import FewShotDataset
from ..drawn import DrawnDataset
from ..folder import ImageFolder
from ..imagenet import WordNetDataset, classname_problems, read_classnames

SAMPLE = 64  # images opened per data set unless all are


@dataclass
class Report:
    """What was found of one data set.

    ``state`` is "ok", "problems" or "not found". Files of the same content are listed, but no
    problem: some of the published sets have a few.
    """

    dataset: str
    folder: str
    state: str = "ok"
    counts: dict[str, int] = field(default_factory=dict)
    opened: int = 0
    unreadable: list[str] = field(default_factory=list)
    same_content: list[list[str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def settings(stem: str, root: str) -> Any:
    """The configuration of a data set, read from ``configs/datasets``."""
    file = str(CONFIGS / "datasets" / f"{stem}.yaml")
    new_split = stem == "folder"  # as main.sh does with a folder of one's own
    given = {"DATASET.ROOT": root, "DATASET.ALLOW_NEW_SPLIT": new_split}
    return resolve(CONFIGS.parent, {"data set": file}, given, {})


def known() -> dict[str, type[FewShotDataset]]:
    """The data sets that have published sizes, by the names of their yaml files."""
    classes = {}
    for path in sorted((CONFIGS / "datasets").glob("*.yaml")):
        name = settings(path.stem, "").DATASET.NAME
        if name in DATASET_REGISTRY.registered_names():
            cls = DATASET_REGISTRY.get(name)
            # Pictures that are made on the spot cannot be wrong on disk.
            if cls.sizes and not issubclass(cls, DrawnDataset):
                classes[path.stem] = cls
    return classes


def check(names: list[str], root: str, *, full: bool = False) -> list[Report]:
    """Check the named data sets, or all.

    Args:
        names: names of yaml files or of classes, in any case, or folders of one's own images.
        root: the folder that holds the data sets.
        full: open all images, not a sample of them.
    """
    classes = known()
    stems = {cls.__name__.lower(): stem for stem, cls in classes.items()}
    chosen = [stems.get(name.lower(), name) for name in names] or list(classes)
    reports = []
    for name in chosen:
        if os.path.isdir(name) and name.lower() not in classes:
            reports.append(check_one("folder", ImageFolder, name, full=full))
            reports[-1].dataset = name
        elif name.lower() in classes:
            reports.append(check_one(name.lower(), classes[name.lower()], root, full=full))
        else:
            raise UserError(
                f"no data set {name!r} has files to check{closest(name, classes)}; there are: "
                f"{', '.join(classes)}"
            )
    return reports


def check_one(stem: str, cls: type[FewShotDataset], root: str, *, full: bool) -> Report:
    """Read one data set and compare it with its published sizes."""
    report = Report(stem, os.path.join(root, cls.dataset_dir))
    if not os.path.isdir(report.folder):
        report.state = "not found"
        return report
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            dataset = cls(settings(stem, root))
    except (UserError, OSError) as error:
        report.state, report.problems = "problems", [str(error)]
        return report
    lists = {"train": dataset.train_x, "val": dataset.val or [], "test": dataset.test}
    paths = {part: [image.impath for image in images] for part, images in lists.items()}
    report.counts = {"classes": dataset.num_classes} | {p: len(x) for p, x in lists.items()}
    for what, expected in (cls.sizes._asdict() if cls.sizes else {}).items():
        if report.counts[what] != expected:
            report.problems.append(f"{report.counts[what]} {what}, not {expected}")
    if isinstance(dataset, WordNetDataset):
        report.problems += classname_problems(read_classnames(dataset.dataset_dir))
    report.problems += repeated(paths)
    everything = sorted({path for part in paths.values() for path in part})
    open_images(report, everything if full else everything[:: 1 + len(everything) // SAMPLE])
    report.state = "problems" if report.problems else "ok"
    return report


def repeated(paths: dict[str, list[str]]) -> list[str]:
    """Images that stand twice in one list, or for training and elsewhere too."""
    problems = []
    for part, listed in paths.items():
        twice = [path for path, count in Counter(listed).items() if count > 1]
        if twice:
            problems.append(f"{len(twice)} images stand twice in {part}, such as {twice[0]}")
    if paths["train"] != paths["test"]:  # the shifted test sets have one list only
        leaked = set(paths["train"]) & {*paths["val"], *paths["test"]}
        if leaked:
            problems.append(f"{len(leaked)} training images are also val or test: {min(leaked)}")
    return problems


def open_images(report: Report, paths: list[str]) -> None:
    """Note which images cannot be read, and which are the same file under two names."""

    def digest(path: str) -> str:
        try:
            content = Path(path).read_bytes()
            read_image(path)
        except Exception:  # Pillow's decoders raise many kinds
            return ""
        return hashlib.sha256(content).hexdigest()

    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(digest, paths))
    first: dict[str, str] = {}
    for path, found in zip(paths, digests, strict=True):
        if not found:
            report.unreadable.append(path)
        elif first.setdefault(found, path) != path:
            report.same_content.append([first[found], path])
    report.opened = len(paths)
    if report.unreadable:
        bad = f"{len(report.unreadable)} of {report.opened} opened images are unreadable"
        report.problems.append(f"{bad}, such as {report.unreadable[0]}")
