"""Faults in files that a user gives, and in folders of images."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch

from tests.conftest import ROOT, TINY
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
PARTED = {f"{part}/{name}/1.png": b"-" for part in PARTS for name in "ab"}
PETS: dict[str, Content] = {f"pets/{name}/{i}.png": b"-" for name in "ab" for i in range(4)}


UNPACKED = 2**28 + 2**20


def bomb(path: Path) -> None:
    """An npz file of a quarter of a megabyte that unpacks to a quarter of a gigabyte."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("logits.npy", "w") as file,
    ):
        for _ in range(UNPACKED // 2**20):
            file.write(bytes(2**20))


def twice(path: Path) -> None:
    """An npz file that holds an array under the same name twice."""
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings(action="ignore"):
        for _ in range(2):
            archive.writestr("logits.npy", b"")


def compressed(path: Path) -> None:
    """A saved tensor whose archive is compressed, as a bomb is."""
    torch.save({"a": torch.zeros(4)}, path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in content.items():
            archive.writestr(name, member)


class Code:
    """Runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return os._exit, (99,)


def tiny(to: Callable[[torch.Tensor], torch.Tensor], prefix: str = "") -> Content:
    """Weights of TinyCLIP with another token table in place of its own, or beside it."""

    def make(path: Path) -> None:
        state = open_clip.create_model("TinyCLIP").state_dict()
        key = "token_embedding.weight"
        torch.save(state | {prefix + key: to(state[key])}, path)

    return make


def saved(value: Any) -> Content:
    """A file that torch.save writes."""
    return lambda path: torch.save(value, path)


def rows(*numbers: float) -> Content:
    """Weights that are three rows of a token table, and which rows they are."""
    state = {"token_embedding.weight": torch.zeros(3, 32)}
    return saved(state | {"token_embedding.rows": torch.tensor(numbers)})


ENDLESS = torch.zeros(1, dtype=torch.int32).expand(10**12)
DESCRIPTION = {"model_cfg": TINY, "preprocess_cfg": {}}


def changed(path: str, value: Any) -> bytes:
    """The description of TinyCLIP with another value there."""
    found = json.loads(json.dumps(DESCRIPTION))
    node = found
    *nodes, last = path.split(".")
    for name in nodes:
        node = node[name]
    node[last] = value
    return json.dumps(found).encode()


def described(name: str, content: Content, words: str, built: bool = False) -> Case:
    """A model in open_clip's format with something wrong in its description."""
    files = {"m/open_clip_config.json": content, "m/open_clip_model.safetensors": b""}
    arguments = ("local-dir:{tmp}/m",)
    train = (*TRAIN, "--backbone", *arguments, "INPUT.SIZE", "(32, 32)")
    program = "train" if built else "models"
    return Case(f"model: {name}", program, train if built else arguments, words, files)


def cifar10(name: str, words: str, **members: bytes) -> Case:
    """An archive of CIFAR-10."""

    def make(path: Path) -> None:
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            for member, content in members.items():
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))

    arguments = ("prepare", "cifar10", "{tmp}/c.tgz", "--data", "{tmp}/d")
    return Case(f"cifar10: {name}", "datasets", arguments, words, {"c.tgz": make})


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


def named(name: str, content: Content, words: str) -> Case:
    """The names of the classes of a folder of one's own."""
    arguments = ("{tmp}/pets", *SWEEP[1:], "--names", "{tmp}/names")
    return Case(f"names: {name}", "sweep", arguments, words, {"names": content, **PETS})


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
    config("deep", "a.yaml", "[" * 1000, r"a\.yaml: not readable"),
    config("a list", "a.yaml", "- 1", r"expected nodes"),
    config("a key twice", "a.yaml", "SEED: 1\nSEED: 2", r'"SEED" is given twice, in lines 1 and 2'),
    config("an octal number", "a.yaml", "SEED: 010", r"the number 010 in line 1 is not in decimal"),
    config("a time", "a.yaml", "OPTIM: {\nMAX_EPOCH: 1:30}", r"number 1:30 in line 2 is not in"),
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
    weights("endless rows", r"token_embedding\.rows are not rows",
            saved({"token_embedding.weight": torch.zeros(3, 32), "token_embedding.rows": ENDLESS})),
    weights("of nothing finite", r"token_embedding\.weight holds numbers that are not finite",
            tiny(lambda table: table / 0)),
    weights("with and without module", r"weights twice", tiny(torch.Tensor.clone, "module.")),
    weights("under numbers", r"no state dict", saved({0: torch.zeros(2)})),
    weights("with code", r"it holds more than tensors", saved({"a": Code()})),
    weights("compressed", r"data\.pkl is compressed", compressed),
]  # fmt: skip
DESCRIPTIONS = [
    described("its folder's code", changed("model_cfg.text_cfg.tokenizer_kwargs",
              {"trust_remote_code": True}), r"trust_remote_code is not taken"),
    described("a pipe", os.mkfifo, r"not a regular file"),
    described("depth", b"[" * 100_000, r"no open_clip_config\.json that can be read"),
    described("a list", b"[1]", r"no open_clip_config\.json that can be read"),
    described("a tower in a list", changed("model_cfg.text_cfg", []), r"must be objects"),
    described("images in a list", changed("preprocess_cfg", [1]), r"must be objects"),
    described("a mean alone", changed("preprocess_cfg.mean", 5), r"must be lists"),
    described("no number", changed("preprocess_cfg.mean", [float("nan")] * 3), r"NaN is no number"),
    described("a size in words", changed("model_cfg.vision_cfg.image_size", "big"), r"is 'big'"),
    described("endless layers", changed("model_cfg.text_cfg.layers", 10**7), r"at most 1000"),
    described("half a layer", changed("model_cfg.vision_cfg.layers", 0.5), r"at most 1000"),
    described("an unknown key", changed("model_cfg.vision_cfg.fast", 1), r"cannot be built", True),
    described("a width in words", changed("model_cfg.embed_dim", "a"), r"cannot be built", True),
    described("an unknown cleaning", changed("model_cfg.text_cfg.tokenizer_kwargs",
              {"clean": "a"}), r"the tokenizer of", True),
]  # fmt: skip
ARCHIVES = [
    cifar10("a label too high", r"beyond the ten classes",
            **{"data_batch_1.bin": bytes([200]) + bytes(3072)}),
    cifar10("a bomb", r"data_batch_1 has 67,108,865 bytes", data_batch_1=bytes(2**26 + 1)),
    cifar10("a pickle of a number", r"cannot be read", data_batch_1=pickle.dumps(5)),
    Case("cifar10: a device", "datasets", ("prepare", "cifar10", "/dev/zero", "--data", "{tmp}/d"),
         r"no archive"),
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
    Case("npz: an array twice", "metrics", ("{tmp}/p.npz",), r"given twice", {"p.npz": twice}),
    predictions("scores of another kind", r'"softmax" or "sigmoid"', scores=np.array("tanh")),
    Case("resamples beyond memory", "metrics", ("{tmp}/p.npz", "--resamples", f"{10**12}",
         "--intervals"), "from 1 to 100000", {"p.npz": npz(logits=LOGITS, labels=LABELS)}),
    table("columns alike", "label,a,a\n0,1,2\n", r"two columns have the same name"),
    table("columns from 1", "label,1,2\n1,1,2\n", r"to be 0, 1, 2"),
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
    named("in bytes", b"a \xff\nb b\n", r"/names: not a text file"),
    named("a folder twice", "a x\na y\nb z\n", r"the folder 'a' twice"),
    named("alike", "a my cat\nb my_cat\n", r"'my cat' and 'my_cat' read the same"),
]  # fmt: skip
OWN = [
    own("bytes", b"\xff\xfe", "not readable as YAML"),
    own("depth", b"[" * 1000, "not readable as YAML"),
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
    own(
        "a long name",
        f"DATASET: {{CLASSNAMES: [a, {'x' * 300}]}}",
        r"dataset\.yaml: prompt too long",
    ),
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
    *(images(f"a list that is {what}", r"cannot read the image",
             **{"file_list.json": content, **PARTED})
      for what, content in (("a pipe", os.mkfifo), ("deep", "[" * 100_000),
                            ("endless", '{"folders": {"train/a": [1e999, "1.png"]}}'))),
    Case("images: a pipe for drawn images", "train", (*TRAIN, *FOLDER, "DATASET.NUM_SHOTS", "1"),
         r"cannot read the image", {"split_fewshot/shot_1-seed_1.json": os.mkfifo, **PARTED},
         DATA_ERROR),
    images("a link for a split", r"split\.json: not a file",
           **{"split.json": lambda path: path.symlink_to("nowhere"), **PARTED}),
    images("a part of a split twice", r"given twice: train, train",
           **{"split.json": '{"train": [], "train": []}'}),
    images("a number for a name", r"must be text", **{"split.json": '{"train": [["a", 0, 5]]}'}),
    images("a class that colours", r"is no name",
           **{f"{part}/{name}/1.png": b"-" for part in PARTS for name in ("a", "\x1b[31m")}),
    *(images(f"a split of {what}", r"not a split file", **{"split.json": content})
      for what, content in {"nothing": "", "a list": "[]", "a long number": "9" * 10_000,
                            "NaN": "NaN", "lists without end": "[" * 100_000,
                            "parts without end": '{"train":' * 50_000}.items()),
    images("no images", r'cannot read the image ".*/[ab]/1\.png"', **PARTED),
    images("a class in Latin-1", r"is not UTF-8; rename it",
           **{f"{part}/{name}/1.png": b"-" for part in PARTS for name in ("a", "\udce9")}),
    images("a name in Latin-1", r"is not UTF-8; rename it",
           **{f"{part}/a/\udce9{i}.png": b"-" for part in PARTS for i in range(4)}),
    images("a device by a link", r"no image in",
           **{"train/a/1.png": lambda path: path.symlink_to("/dev/zero"), "test/a/1.png": b"-"}),
]  # fmt: skip
CASES = [*CONFIGS, *WEIGHTS, *DESCRIPTIONS, *ARCHIVES, *PREDICTIONS, *GRIDS, *OWN, *IMAGES]
