"""Faults in files that a user gives, and in folders of images."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch

from tests.conftest import ROOT
from tests.faults.case import COOP, DATA_ERROR, SWEEP, TRAIN, Case, Content

FOLDER = ("--dataset-config-file", str(ROOT / "configs/datasets/folder.yaml"), "--root", "{tmp}")


def npz(**arrays: Any) -> bytes:
    """An npz file."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


PARTS = ("train", "test")
LOGITS = np.eye(3, dtype=np.float32)
LABELS = np.arange(3)
PETS: dict[str, Content] = {f"pets/{name}/{i}.png": b"-" for name in "ab" for i in range(4)}


def bomb(path: Path) -> None:
    """An npz file of a megabyte that unpacks to a gigabyte."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("logits.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(2**10):
            file.write(bytes(2**20))


def tiny(to: Callable[[torch.Tensor], torch.Tensor]) -> Content:
    """Weights of TinyCLIP with a token table of another kind."""

    def make(path: Path) -> None:
        state = open_clip.create_model("TinyCLIP").state_dict()
        key = "token_embedding.weight"
        torch.save(state | {key: to(state[key])}, path)

    return make


def rows(*numbers: float) -> Content:
    """Weights that are three rows of a token table, and which rows they are."""
    state = {"token_embedding.weight": torch.zeros(3, 32)}
    return lambda path: torch.save(state | {"token_embedding.rows": torch.tensor(numbers)}, path)


def weights(name: str, words: str, content: Content) -> Case:
    """A file of weights."""
    arguments = (*TRAIN, "MODEL.BACKBONE.WEIGHTS", "{tmp}/w.pt")
    return Case(f"weights: {name}", "train", arguments, words, {"w.pt": content})


def predictions(name: str, words: str, **arrays: Any) -> Case:
    """The metrics command on an npz file with something wrong in it."""
    content = npz(**{"logits": LOGITS, "labels": LABELS, **arrays})
    return Case(f"npz: {name}", "metrics", ("{tmp}/p.npz",), words, {"p.npz": content})


def table(name: str, content: bytes | str, words: str) -> Case:
    """The metrics command on a CSV file."""
    arguments = ("{tmp}/p.csv", "--kind", "logits")
    return Case(f"csv: {name}", "metrics", arguments, words, {"p.csv": content})


def grid(name: str, content: Content, words: str) -> Case:
    """A sweep's grid file."""
    arguments = ("{tmp}/grid.yaml", "--dry-run", "--output", "{tmp}/out")
    return Case(f"grid: {name}", "sweep", arguments, words, {"grid.yaml": content})


def config(name: str, file: str, content: Content, words: str) -> Case:
    """A method's config file."""
    arguments = (*TRAIN, "--config-file", "{tmp}/" + file)
    return Case(f"config: {name}", "train", arguments, words, {file: content})


def own(name: str, content: Content, words: str) -> Case:
    """The settings of a folder of one's own, which a user may edit."""
    files = {"out/pets/dataset.yaml": content, **PETS}
    arguments = ("{tmp}/pets", *SWEEP[1:])
    return Case(f"dataset.yaml: {name}", "sweep", arguments, words, files)


def images(name: str, words: str, **files: Content) -> Case:
    """A folder of one's own images."""
    trainer = ("--trainer", "CoOp", "--backbone", "TinyCLIP", *COOP)
    arguments = (*trainer, *FOLDER, "--output-dir", "{tmp}/o")
    return Case(f"images: {name}", "train", arguments, words, files, DATA_ERROR)


CONFIGS = [
    config("Python", "a.py", "raise SystemExit('ran')", r"expected a \.yaml or \.yml file"),
    config("an object", "a.yaml", "SEED: !!python/object/apply:os.getpid []", r"a\.yaml: not read"),
    config("bytes", "a.yaml", b"\xff\xfe\x00", r"a\.yaml: not readable"),
    config("half a list", "a.yaml", "OPTIM: [", r"a\.yaml: .*while parsing"),
    config("deep", "a.yaml", "[" * 5000, r"a\.yaml: not readable"),
    config("a list", "a.yaml", "- 1", r"expected nodes"),
    config("a key twice", "a.yaml", "SEED: 1\nSEED: 2", r'"SEED" is given twice, in lines 1 and 2'),
    config("a pipe", "a.yaml", os.mkfifo, r"a\.yaml: .*not a regular file"),
    config("a wrong value", "a.yaml", "OPTIM: {LR: -1}", r"a\.yaml: OPTIM\.LR must be"),
    config("a wrong key", "a.yaml", "OPTIM: {LRR: 1}", r'a\.yaml: .*did you mean "OPTIM.LR"'),
]
WEIGHTS = [
    weights("of integers", r"token_embedding\.weight holds torch\.int64", tiny(torch.Tensor.long)),
    weights("without numbers", r"holds no plain numbers", tiny(lambda table: table.to("meta"))),
    weights("sparse", r"holds no plain numbers", tiny(torch.Tensor.to_sparse)),
    *(weights(f"rows {numbers}", r"token_embedding\.rows are not rows", rows(*numbers))
      for numbers in ((-1, 7, 9), (5, 5, 9), (5, 7, 49408), (5, 7), (5.0, 7.0, 9.0))),
]  # fmt: skip
PREDICTIONS = [
    predictions("text", r"expected numbers .* got <U", labels=np.array(["a", "b", "c"])),
    predictions("a structure", r"expected numbers", logits=np.zeros(3, [("a", "f4")])),
    predictions("objects", r"not a readable npz", logits=np.array([{}], dtype=object)),
    predictions("no labels", r"one of labels", labels=np.zeros(0), label=LABELS),
    predictions("far apart", r"too far apart", logits=np.array([[1e308, -1e308, 0]] * 3)),
    Case("npz: a pipe", "metrics", ("{tmp}/p.npz",), r"not a regular file", {"p.npz": os.mkfifo}),
    Case("npz: a bomb", "metrics", ("{tmp}/p.npz",), r"bytes that unpack to", {"p.npz": bomb}),
    predictions("infinite", r"infinity in row 0", logits=LOGITS + np.inf),
    predictions("a label too high", r"from 0 to 2", labels=LABELS + 1),
    Case("bins beyond memory", "metrics", ("{tmp}/p.npz", "--bins", "100000000"), "from 1 to 10000",
         {"p.npz": npz(logits=LOGITS, labels=LABELS)}),
    Case("no predictions", "metrics", ("{tmp}/p.npz",), r"p\.npz: cannot be read"),
    table("no number", "label,a,b\ncat,1,2\n", r"line 2: invalid literal"),
    table("a giant", f"label,a,b\n{10**30},1,2\n", r"line 2: "),
    table("a short row", "label,a,b\n1,2\n", r"line 2: 2 columns"),
    table("no label", "a,b\n1,2\n", r"one column called label"),
    table("bytes", b"label,a\n\xff\n", r"cannot be read"),
    table("a long cell", "label,a\n0," + "1" * 200_000, r"cannot be read"),
]  # fmt: skip
GRIDS = [
    grid("bytes", b"datasets: \xff", r"grid\.yaml"),
    grid("empty", "", r"grid\.yaml"),
    grid("an unknown option", "{datasets: digits, options: {OPTIM.LRR: 1}}", r'"OPTIM\.LRR"'),
    grid("a wrong option", "{datasets: digits, options: {OPTIM.LR: -1}}", r"OPTIM\.LR must be"),
    grid("a wrong form", "{datasets: digits, forms: square}", r"square"),
    grid("an unknown trainer", "{datasets: digits, trainers: CoOpp}", r'did you mean "CoOp'),
    grid("an unknown data set", "datasets: digit", r'did you mean "digits'),
    grid("an unknown backbone", "{datasets: digits, backbones: ViT-B/61}", r"ViT-B/61"),
    grid("a tag that leaves", "{datasets: digits, tag: /../../x}", r"tag takes letters"),
    grid("a tag as of shots", "{datasets: digits, tag: 8shots}", r"reads like a part of other"),
    grid("an axis twice", "datasets: digits\nshots: 1\nshots: 2", r'"shots" is given twice'),
    grid("a pipe", os.mkfifo, r"grid\.yaml: .*not a regular file"),
    grid("an axis as an option", "{datasets: digits, options: {SEED: 3}}", r"SEED as --seeds"),
    Case("a grid with a slip", "sweep", ("{tmp}/grit.yaml", *SWEEP[1:]),
         r'no grid file .*did you mean "grid\.yaml"', {"grid.yaml": ""}),
    Case("names in bytes", "sweep", ("{tmp}/pets", *SWEEP[1:], "--names", "{tmp}/names"),
         r"/names: not a text file", {"names": b"a \xff\nb b\n", **PETS}),
]  # fmt: skip
OWN = [
    own("bytes", b"\xff\xfe", "not readable as YAML"),
    own("depth", b"[" * 5000, "not readable as YAML"),
    own("half a list", "DATASET: [", "not readable as YAML"),
    own("an object", "DATASET: !!python/name:os.getpid", "not readable as YAML"),
    own("a text", "a text", "expected nodes"),
    own("a list", "- DATASET", "expected nodes"),
    own("a number for a key", "1: 2", "dataset.yaml"),
    own("nothing", "DATASET: null", "DATASET"),
    own("no mapping", "DATASET: [ROOT]", "DATASET"),
    own("a root of a number", "DATASET: {ROOT: 5}", r"DATASET\.ROOT"),
    own("a root of a list", "DATASET: {ROOT: [a]}", r"DATASET\.ROOT"),
    own("a prompt without a place", "DATASET: {TEMPLATE: a photo}", r"DATASET\.TEMPLATE"),
    own("a prompt of a mapping", "DATASET: {TEMPLATE: {a: b}}", r"DATASET\.TEMPLATE"),
    own("names in a mapping", "DATASET: {CLASSNAMES: {a: b}}", r"DATASET\.CLASSNAMES"),
    own("too few names", "DATASET: {CLASSNAMES: [a]}", r"must name the 2 classes .* got 1 names"),
    own("names in lists", "DATASET: {CLASSNAMES: [[a], 1]}", r"DATASET\.CLASSNAMES"),
    own("another data set", "DATASET: {NAME: OxfordPets}", "NAME must be ImageFolder"),
    own("an unknown key", "DATASET: {ROOTS: a}", "ROOTS"),
    own("a key twice", "DATASET: {}\nDATASET: {}", r'"DATASET" is given twice, in lines 1 and 2'),
    own("a folder", Path.mkdir, "not a file"),
    own("a pipe", os.mkfifo, "not a file"),
]
IMAGES = [
    images("names that read the same", r"'a b' and 'a_b' read the same",
           **{f"{part}/{name}/1.png": b"-" for part in PARTS for name in ("a b", "a_b")}),
    images("only a pipe", r"no image in",
           **{"train/a/pipe.png": os.mkfifo, "test/a/1.png": b"-"}),
    images("no folders", r"needs folders train/ and test/", **{"a/1.png": b"-"}),
    images("a billion labels", r"\d+ of them have none",
           **{"split.json": '{"train": [["a", 0, "a"], ["b", 1000000000, "b"]], "val": [],'
              ' "test": [["a", 0, "a"]]}'}),
    images("a split of nothing", r"not a split file", **{"split.json": "[]"}),
    images("a split without an end", r"not a split file", **{"split.json": "[" * 100_000}),
    images("no images", r'cannot read the image ".*/[ab]/1\.png"',
           **{f"{part}/{name}/1.png": b"-" for part in PARTS for name in "ab"}),
    images("a class in Latin-1", r"is not UTF-8; rename it",
           **{f"{part}/{name}/1.png": b"-" for part in PARTS for name in ("a", "\udce9")}),
    images("a name in Latin-1", r"is not UTF-8; rename it",
           **{f"{part}/a/\udce9{i}.png": b"-" for part in PARTS for i in range(4)}),
    images("a device by a link", r"no image in",
           **{"train/a/1.png": lambda path: path.symlink_to("/dev/zero"), "test/a/1.png": b"-"}),
]  # fmt: skip
CASES = [*CONFIGS, *WEIGHTS, *PREDICTIONS, *GRIDS, *OWN, *IMAGES]
