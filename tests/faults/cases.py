"""Faults as a table: what is called, and the exit code and the words it must end with.

``{tmp}`` is a folder of the case, with what ``files`` puts there. Every case ends in one line.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import ROOT

DIGITS = ("--dataset-config-file", str(ROOT / "configs/datasets/digits.yaml"))
COOP = ("--config-file", str(ROOT / "configs/trainers/CoOp/glyph.yaml"))
TRAIN = ("--trainer", "CoOp_CMP", "--backbone", "TinyCLIP", "--seed", "1", *DIGITS, *COOP)
SWEEP = ("digits", "--shots", "1", "--dry-run", "--output", "{tmp}/out")
FOLDER = ("--dataset-config-file", str(ROOT / "configs/datasets/folder.yaml"), "--root", "{tmp}")

Content = bytes | str | Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """One fault.

    Attributes:
        name: What is wrong.
        program: A command of ``coop-cmp``, or ``pretrain``.
        arguments: Of the program.
        words: A regular expression that the last line on stderr matches.
        files: By name below ``{tmp}``: bytes, text, or a function that makes the path.
        code: The exit code.
    """

    name: str
    program: str
    arguments: Sequence[str]
    words: str
    files: dict[str, Content] = field(default_factory=dict)
    code: int = 2


DATA_ERROR = 65  # in a data set, which a sweep then leaves out


def option(key: str, value: str, words: str) -> Case:
    """A setting with a value that it does not take."""
    return Case(f"{key} {value}"[:60], "train", (*TRAIN, key, value), words)


def npz(**arrays: Any) -> bytes:
    """An npz file."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


PARTS = ("train", "test")
LOGITS = np.eye(3, dtype=np.float32)
LABELS = np.arange(3)


def bomb(path: Path) -> None:
    """An npz file of a megabyte that unpacks to a gigabyte."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("logits.npy", "w", force_zip64=True) as file,
    ):
        for _ in range(2**10):
            file.write(bytes(2**20))


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


def images(name: str, words: str, **files: Content) -> Case:
    """A folder of one's own images."""
    trainer = ("--trainer", "CoOp", "--backbone", "TinyCLIP", *COOP)
    arguments = (*trainer, *FOLDER, "--output-dir", "{tmp}/o")
    return Case(f"images: {name}", "train", arguments, words, files, DATA_ERROR)


SETTINGS = [
    option("OPTIM.LR", "0", r"OPTIM\.LR must be a number above 0"),
    option("OPTIM.LR", "-0.1", r"OPTIM\.LR must be a number above 0"),
    option("OPTIM.LR", "nan", r"OPTIM\.LR must be a number above 0"),
    option("OPTIM.LR", "1e999", r"OPTIM\.LR must be a number above 0"),
    option("OPTIM.MAX_EPOCH", "0", r"MAX_EPOCH must be a whole number from 1"),
    option("OPTIM.MAX_EPOCH", "1.5", r"MAX_EPOCH must be a whole number"),
    option("OPTIM.MOMENTUM", "5", r"MOMENTUM must be a number >= 0 and below 1"),
    option("OPTIM.NAME", "sdg", r'must be adam, .* did you mean "sgd"'),
    option("OPTIM.LR_SCHEDULER", "cosin", r'did you mean "cosine"'),
    option("OPTIM.WARMUP_TYPE", "fast", r"must be linear or constant"),
    option("OPTIM.SHOT_EPOCHS", "[[1]]", r"SHOT_EPOCHS must be a list, each \["),
    option("OPTIM.SHOT_EPOCHS", "often", r"SHOT_EPOCHS must be a list"),
    option("OPTIM.WEIGHT_DECAY", "-1", r">= 0, got"),
    option("TEST.SPLIT", "foo", r"TEST\.SPLIT must be test or val"),
    option("TEST.FINAL_MODEL", "best", r"must be last_step or best_val"),
    option("TEST.N_BINS", "100000000", r"from 1 to 10000"),
    option("TEST.EVALUATOR", "Clasification", r'unknown evaluator "Clasification"'),
    option("DATALOADER.NUM_WORKERS", "-1", r"NUM_WORKERS must be a whole number from 0"),
    option("DATALOADER.TRAIN_X.BATCH_SIZE", "0", r"BATCH_SIZE must be a whole number from 1"),
    option("DATALOADER.TEST.BATCH_SIZE", "-3", r"BATCH_SIZE must be a whole number from 1"),
    option("DATALOADER.TRAIN_X.SAMPLER", "Random", r"must be RandomSampler, "),
    option("INPUT.TRANSFORMS", "['flip']", r"each random_flip, "),
    option("INPUT.INTERPOLATION", "cubic", r'did you mean "bicubic"'),
    option("INPUT.SIZE", "(0, 0)", r"INPUT\.SIZE must be a list of 2"),
    option("INPUT.PIXEL_STD", "[1, 1, 0]", r"PIXEL_STD must be a list of 3, each a number above 0"),
    option("DATASET.TEMPLATE", "a photo", r"a prompt with one \{\}"),
    option("DATASET.TEMPLATE", "a {x}", r"brace"),
    option("DATASET.TEMPLATE", "a {", r"brace"),
    option("DATASET.NUM_SHOTS", "0", r"NUM_SHOTS must be a whole number >= 1 or -1"),
    option("DATASET.SUBSAMPLE_CLASSES", "old", r"must be all, base or new"),
    option("TRAINER.CMP.FORM", "square", r"must be ratio or log"),
    option("TRAINER.CMP.LAMBDA", "inf", r"LAMBDA must be a number >= 0"),
    option("TRAINER.COOP.N_CTX", "1000000000", r"N_CTX must be a whole number from 1 to 75"),
    option("TRAINER.COOP.N_CTX", "75", r"context|tokens|77"),
    option("MODEL.BACKBONE.WEIGHTS", "/dev/zero", r"neither a file nor a tag"),
    option("DATASET.NAME", "Digit", r'unknown data set "Digit".*"Digits"'),
    option("TRAINER.CMP.LAMDA", "1", r'"TRAINER\.CMP\.LAMDA".*"TRAINER\.CMP\.LAMBDA"'),
    option("TRAINER.COOP.PREC", "fp8", r"PREC must be fp32, amp or fp16, got 'fp8'"),
    option("TRAINER.COOP.CLASS_TOKEN_POSITION", "side", r"must be end, middle or front"),
    option("MODEL.TEXT_ENCODER", "fast", r"TEXT_ENCODER must be shared or naive, got 'fast'"),
    option("INPUT.SIZE", "(48, 48)", r"INPUT\.SIZE is \(48, 48\).*\(32, 32\)"),
    option("DEVICE", "gpu0", r'device "gpu0" cannot be used'),
    option("DEVICE", "meta", r'device "meta" cannot be used: its tensors hold no numbers'),
    option("INPUT.NO_TRANSFORM", "True", r"INPUT\.NO_TRANSFORM True: .*leave it"),
    option("DATASET.TEMPLATE", "{:>99999999999}", r"brace"),
    option("TRAINER.TPT.VIEWS", "1e30", r"TPT\.VIEWS must be a whole number from 1 to 1024"),
    option("TRAINER.BPEFT.KL_WEIGHTS", "[-0.1]", r"KL_WEIGHTS must be a list, each a number >= 0"),
    option("OPTIM.LR", "1e30", r"infinite or NaN.*epoch \d+.*rate 1e\+30.*lower OPTIM\.LR"),
]
COMMANDS = [
    Case("no model to test", "train", (*TRAIN, "--eval-only"), r"--eval-only .* --model-dir"),
    Case("an unknown trainer", "train", (*TRAIN, "--trainer", "CoOpp"), r'trainer "CoOpp".*"CoOp"'),
    Case("no trainer", "train", (*TRAIN, "--trainer", ""), r"no trainer given \(--trainer\)"),
    Case("no model there", "train", (*TRAIN, "--eval-only", "--model-dir", "no/where"),
         r"no model at .*no/where"),
    Case("no root", "train", (*TRAIN, "--root", "", "DATASET.NAME", "OxfordPets"),
         r"--root \(DATASET\.ROOT\)", code=DATA_ERROR),
    Case("an odd option", "train", (*TRAIN, "OPTIM.LR"), r"no value for OPTIM\.LR"),
    Case("a seed below -1", "train", (*TRAIN, "--seed", "-7"), r"SEED must be .* from 0 to \d+"),
    Case("an unknown backbone", "train", (*TRAIN, "--backbone", "ViT-B/61"),
         r'unknown backbone.*did you mean "ViT-B/16"'),
    Case("an option twice", "train", (*TRAIN, "OPTIM.LR", "1", "OPTIM.LR", "2"),
         r"LR is given twice"),
    Case("a flag and an option", "train", (*TRAIN, "SEED", "2"),
         r"SEED .* a flag and as an option"),
    Case("a config with a slip", "train",
         (*TRAIN, "--dataset-config-file", "configs/datasets/digit.yaml"),
         r'no file .*did you mean "digits\.yaml"'),
    Case("no data root", "train", (*TRAIN, "--root", "{tmp}/no", "DATASET.NAME", "OxfordPets"),
         r"no folder .*/no/oxford_pets", code=DATA_ERROR),
    Case("output under a file", "train", (*TRAIN, "--output-dir", "{tmp}/a/out"),
         r"Not a directory", {"a": "a file"}),
    Case("negative pruning", "store", ("--prune", "-5", "--store", "{tmp}"), "days from 0"),
    Case("pruning nan days", "store", ("--prune", "nan", "--store", "{tmp}"), "days from 0"),
    Case("untrained weights", "pretrain", ("--steps", "-1", "--output", "{tmp}/w"), "takes 1"),
    Case("weights to nowhere", "pretrain", ("--steps", "1"), "--output"),
    Case("bins beyond memory", "metrics", ("{tmp}/p.npz", "--bins", "100000000"), "from 1 to 10000",
         {"p.npz": npz(logits=LOGITS, labels=LABELS)}),
    Case("no predictions", "metrics", ("{tmp}/p.npz",), r"p\.npz: cannot be read"),
]  # fmt: skip
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
    table("no number", "label,a,b\ncat,1,2\n", r"line 2: invalid literal"),
    table("a giant", f"label,a,b\n{10**30},1,2\n", r"line 2: "),
    table("a short row", "label,a,b\n1,2\n", r"line 2: 2 columns"),
    table("no label", "a,b\n1,2\n", r"one column called label"),
    table("bytes", b"label,a\n\xff\n", r"cannot be read"),
    table("a long cell", "label,a\n0," + "1" * 200_000, r"cannot be read"),
]
AXES = {
    "DATASET.NAME": r"DATASET\.NAME as --datasets",
    "TRAINER.NAME": r"TRAINER\.NAME as --trainers",
    "MODEL.BACKBONE.NAME": r"MODEL\.BACKBONE\.NAME as --backbones",
    "DATASET.NUM_SHOTS": r"DATASET\.NUM_SHOTS as --shots",
    "SEED": r"SEED as --seeds",
    "TRAINER.CMP.LAMBDA": r"TRAINER\.CMP\.LAMBDA as --lambdas",
    "TRAINER.CMP.FORM": r"TRAINER\.CMP\.FORM as --forms",
    "TEST.SPLIT": r"TEST\.SPLIT as --validate",
    "DATASET.SUBSAMPLE_CLASSES": r"is set by base2new",
    "DATASET.ROOT": r"is set by --data",
    "DEVICE": r"is set by --devices",
    "OUTPUT_DIR": r"is set by --output",
    "RESUME": r"is set by the sweep",
}
PETS: dict[str, Content] = {f"pets/{name}/{i}.png": b"-" for name in "ab" for i in range(4)}
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
    Case("swapped letters", "sweep", (*SWEEP, "--trainers", "CoOp_CPM"), r'mean "CoOp_CMP"'),
    Case("an option twice", "sweep", (*SWEEP, "--options", "OPTIM.LR=1", "OPTIM.LR=2"), "twice"),
    *(Case(f"the option {key}", "sweep", (*SWEEP, "--options", f"{key}=1"), words)
      for key, words in AXES.items()),
    *(Case(f"{option} {value}", "sweep", (*SWEEP, option, value), rf"{option}: .* at most \d+")
      for option in ("--jobs", "--threads", "--time-limit") for value in ("2000000000", "0")),
    Case("endless runs", "sweep", (*SWEEP, "--time-limit", "inf"), r"--time-limit: .* at most"),
    Case("nobody's home", "sweep", (*SWEEP, "--output", "~noone/x"), r"--output ~noone/x: not"),
    Case("data of nobody", "sweep", (*SWEEP, "--data", "~nobody-here/x"), r"--data ~nobody-here"),
    Case("links in a circle", "sweep", (*SWEEP, "--output", "{tmp}/loop/x"), r"loop",
         {"loop": lambda path: path.symlink_to(path)}),
    Case("names in bytes", "sweep", ("{tmp}/pets", *SWEEP[1:], "--names", "{tmp}/names"),
         r"/names: not a text file", {"names": b"a \xff\nb b\n", **PETS}),
    Case("half a quote for Slurm", "sweep", (*SWEEP[:3], *SWEEP[4:], "--slurm", "a='"), r"--slurm"),
]  # fmt: skip
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
    images("a device by a link", r"no image in",
           **{"train/a/1.png": lambda path: path.symlink_to("/dev/zero"), "test/a/1.png": b"-"}),
]  # fmt: skip
CASES = [*SETTINGS, *COMMANDS, *CONFIGS, *PREDICTIONS, *GRIDS, *IMAGES]
