"""``--check``: try every trainer of a checkout, without weights, data or GPU.

Each trainer and its twin are built on a CLIP of few layers with random weights, train one step on
pictures of noise, and are tested. With lambda 0 the twin must learn what the baseline learns, bit
for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coop_cmp.checkout.fakes import CLASSES, SIZE, TEXT_LAYERS, faked, noise_dataset
from coop_cmp.checkout.fast import accelerate
from coop_cmp.checkout.runner import describe, import_script
from coop_cmp.checkout.twins import twins
from coop_cmp.errors import UserError, closest
from coop_cmp.losses.names import TERMS, Term, split_trainer, twin_of

TEMPLATED = "OxfordPets"  # a data set for which every checkout has prompt templates


def check(script: Path, only: str | None, opts: list[str]) -> Iterator[tuple[str, str, str]]:
    """Try the trainers of a training script.

    Args:
        script: The training script; its directory is on the path.
        only: The name of a trainer, or of a twin with the term to try; None for all trainers that
            the script brings and that train, with the penalty.
        opts: Keys and values of settings to change.

    Yields:
        For each trainer its name, what its twin does, and what ``--fast`` does.
    """
    with dry_run(script, opts) as (trainers, config):
        training, (plain, term) = [*twins(trainers)], split_trainer(only or "")
        if plain and plain not in training:
            raise UserError(f'there is no trainer "{plain}" that trains{closest(plain, training)}')
        untrained = [name for name in trainers if name not in training]
        for name in [plain] if plain else training:
            yield name, *_try(name, TERMS[term or "CMP"], config, untrained)


@contextlib.contextmanager
def dry_run(
    script: Path,
    opts: list[str],
    classes: Sequence[str] = CLASSES,
    text_layers: int = TEXT_LAYERS,
) -> Iterator[tuple[list[str], Callable[[str], Any]]]:
    """Import a training script and make the place where its trainers run on fake weights and data.

    Yields:
        The trainers that the script brings, and a function that makes a trainer's config.
    """
    from dassl.data.datasets import DATASET_REGISTRY

    before = DATASET_REGISTRY.registered_names()
    names, trainers = import_script(script)
    brought = [name for name in DATASET_REGISTRY.registered_names() if name not in before]
    dataset = TEMPLATED if TEMPLATED in brought or not brought else brought[0]
    with faked(text_layers) as folder:
        noise_dataset(folder, dataset, classes)
        yield trainers, partial(_config, names, script.parent, dataset, opts)


def _try(
    name: str, term: Term, config: Callable[[str], Any], untrained: list[str]
) -> tuple[str, str]:
    """Return what the trainer's twin does, and what ``--fast`` does."""
    baseline = _run(name, config, fast=True)
    if baseline.learned and baseline.error and untrained:
        while untrained:  # its test may need what zero-shot CLIP leaves
            _run(untrained.pop(), config)
        baseline = _run(name, config, fast=True)
    if not baseline.learned:
        return f"the checkout's: {name} itself fails in {baseline.error}", baseline.fast
    twin = _run(twin_of(name, term.name), config)
    if twin.error and not (baseline.error and twin.learned):
        return f"the twin fails in {twin.error}", baseline.fast
    if term.replaces:
        verdict = f"works with {term.title}"
    elif _same(baseline, twin):
        verdict = "works; lambda 0 is bit-identical"
    elif _same(baseline, _run(name, config)):
        return "the twin: with lambda 0 it learns something else", baseline.fast
    else:
        verdict = f"works; lambda 0 was not compared, {name} itself differs between two runs"
    if baseline.error:
        verdict += f"; the checkout's: {name} itself fails in {baseline.error}"
    return verdict, baseline.fast


@dataclass
class Attempt:
    """A training step and a test.

    Attributes:
        learned: All weights after the step, if it got that far.
        fast: What ``--fast`` said.
        error: Where and how it failed, if so.
    """

    learned: dict[str, Tensor] = field(default_factory=dict)
    fast: str = ""
    error: str = ""


def _run(name: str, config: Callable[[str], Any], fast: bool = False) -> Attempt:
    from dassl.engine import build_trainer
    from dassl.utils import set_random_seed

    attempt, printed, stage = Attempt(), io.StringIO(), "reading its settings"
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            cfg = config(name)
            stage = "building"
            set_random_seed(1)
            trainer = build_trainer(cfg)
            # Some save all of CLIP, and event files outlive the directory.
            trainer.save_model = trainer.init_writer = lambda *_, **__: None
            stage = "training"
            if trainer._models:
                trainer.train()
            attempt.learned = _weights(trainer)
            if fast:
                accelerate(trainer)
            if attempt.learned:
                _weigh(trainer.cfg, 0.5)
                _step(trainer)
            stage = "the test"
            trainer.test()
        except Exception as error:
            attempt.error = f"{stage}: {describe(error)}"
    attempt.fast = _said(printed) if fast and attempt.learned else ""
    return attempt


def _step(trainer: Any) -> None:
    """Take one more step, not the last of its epoch."""
    trainer.set_model_mode("train")
    trainer.batch_idx, trainer.num_batches = 0, 2
    trainer.forward_backward(next(iter(trainer.train_loader_x)))


def _weights(trainer: Any) -> dict[str, Tensor]:
    return {
        f"{name}.{key}": value.clone()
        for name, model in trainer._models.items()
        for key, value in model.state_dict().items()
    }


def _same(these: Attempt, those: Attempt) -> bool:
    a, b = these.learned, those.learned
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def _said(printed: io.StringIO) -> str:
    """Return the last line of ``--fast``, if the text encoder was called."""
    start = "coop_cmp --fast: "
    lines = [line for line in printed.getvalue().splitlines() if line.startswith(start)]
    line = lines[-1].removeprefix(start) if lines else "the text encoder is not called"
    return line.removeprefix("the text encoder ")


def _config(names: dict[str, Any], home: Path, dataset: str, opts: list[str], trainer: str) -> Any:
    """Make the settings of a small run: the script's, with the trainer's own file."""
    from dassl.config import get_cfg_default

    folder = Path.cwd()
    output = folder / trainer
    output.mkdir(exist_ok=True)  # some expect what a log or a model would have made
    setup: Any = names.get("setup_cfg")
    file = _settings_file(home / "configs" / "trainers", split_trainer(trainer)[0])
    try:
        cfg = setup(_arguments(setup, file)) if setup else get_cfg_default()
    except (ValueError, KeyError, AssertionError):  # some files do not fit their own script
        cfg = setup(_arguments(setup, ""))
    cfg = cfg.clone()
    cfg.defrost()
    small: dict[str, Any] = {
        "DATASET.NAME": dataset,
        "DATASET.ROOT": str(folder),
        "DATASET.SUBSAMPLE_CLASSES": "base",  # DePT trains on nothing else
        "DATALOADER.NUM_WORKERS": 0,
        "DATALOADER.TRAIN_X.BATCH_SIZE": len(CLASSES),
        "INPUT.SIZE": (SIZE, SIZE),
        "INPUT.TRANSFORMS": ("normalize",),
        "MODEL.BACKBONE.NAME": "ViT-B/16",
        "OPTIM.NAME": "sgd",
        "OPTIM.MAX_EPOCH": 1,
        "OUTPUT_DIR": str(output),
        "SEED": 1,
        "TEST.NO_TEST": True,
        "TRAINER.NAME": trainer,
        "USE_CUDA": False,
    }
    for key, value in small.items():
        _set(cfg, key, value)
    for node in cfg.TRAINER.values():
        if isinstance(node, type(cfg)) and "PREC" in node:
            node.PREC = "fp32"
    _weigh(cfg, 0.0)
    cfg.merge_from_list(opts)
    return cfg


def _weigh(cfg: Any, weight: float) -> None:
    """Give all terms a weight."""
    for term in TERMS.values():
        if term.weight_key:
            cfg.TRAINER[term.node][term.weight_key] = weight


def _settings_file(folder: Path, trainer: str) -> str:
    """Find a trainer's settings file, if any; for ViT-B/16 if there is a choice."""
    folders = [f for f in folder.glob("*") if f.name.lower() == trainer.lower()]
    files = sorted(file for folder in folders for file in folder.glob("*.yaml"))
    return str(next((f for f in files if "vit_b16" in f.name), *files[:1])) if files else ""


def _set(cfg: Any, key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        cfg = cfg[part]
    if last in cfg:
        cfg[last] = value


def _arguments(setup: Any, file: str) -> _Arguments:
    arguments = _Arguments(config_file=file)
    setup.__globals__["args"] = arguments  # TaskRes reads them off a global name too
    return arguments


class _Arguments(argparse.Namespace):
    """The arguments of a command line that gives none."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return [] if name == "opts" else None
