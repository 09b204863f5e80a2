"""A run by name: what is trained or tested, and where it lives below the output directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from coop_cmp.losses.names import TERMS, split_trainer

DEFAULT_LAMBDA = 0.01
DEFAULT_FORM = "ratio"
LABEL_FREE = ("sals", "dac")  # calibrators that look at zero-shot CLIP instead of labels
TEST_TIME = ("TPT", "CTPT", "OTPT")  # learn from test images alone
LAMBDAS = (0.001, 0.01, 0.05, 0.1, 0.5, 0.95)  # of the line search


def is_zero_shot(trainer: str) -> bool:
    """Whether the trainer uses no training images: shots make no difference, one seed is run."""
    return trainer.startswith("Zeroshot") or trainer in TEST_TIME


def is_twin(trainer: str) -> bool:
    """Whether the trainer is a baseline with the penalty."""
    return split_trainer(trainer)[1] == "CMP"


def shots_text(shots: int) -> str:
    """``1 shot``, ``2 shots``."""
    return "1 shot" if shots == 1 else f"{shots} shots"


def number_text(value: float) -> str:
    """``0.01``, ``1``, ``0.3333333``: all digits, so that other weights have other names."""
    return repr(float(value)).removesuffix(".0")


@dataclass(frozen=True)
class Run:
    """One training with its test, or one evaluation of a trained run elsewhere.

    Args:
        dataset: the name of a file in ``configs/datasets``, without ``.yaml``.
        lam: the weight of the penalty, None for a trainer without it.
        options: configuration keys and values that go to ``train.py`` as they are.
        tag: the end of the directory's name, to keep runs with other options apart.
        source: evaluate the run trained on this data set instead of training.
        split: ``val`` evaluates the trained run on its few-shot validation part.
        classes: ``base`` trains on the first half of the classes, ``new`` evaluates that run on the
            others.
        calibrator: what changes the finished run's predictions afterwards, such as ``temperature``
            or ``temperature-map`` (with the source of its labels).
    """

    dataset: str
    trainer: str
    backbone: str
    shots: int = 0
    seed: int = 1
    lam: float | None = None
    form: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    tag: str = ""
    source: str = ""
    split: Literal["test", "val"] = "test"
    classes: Literal["all", "base", "new"] = "all"
    calibrator: str = ""

    @property
    def uncalibrated(self) -> Run | None:
        """The run whose predictions are calibrated; None for one that is not."""
        return replace(self, calibrator="") if self.calibrator else None

    @property
    def labels(self) -> str:
        """Where a calibrator's labels are from: ``val``, ``map``, or ``none`` if it needs none."""
        return self.calibrator.partition("-")[2] or (
            "none" if self.calibrator in LABEL_FREE else "val"
        )

    @property
    def training(self) -> Run | None:
        """The run that has to be complete before this one can be evaluated."""
        elsewhere = self.source or self.split != "test" or self.classes == "new"
        if not elsewhere or is_zero_shot(self.trainer):
            return None
        classes: Literal["all", "base"] = "all" if self.classes == "all" else "base"
        dataset = self.source or self.dataset
        plain = replace(self, source="", split="test", calibrator="")
        return replace(plain, dataset=dataset, classes=classes)

    @property
    def choices(self) -> dict[str, str]:
        """The settings that its name tells, by key."""
        chosen: dict[str, str] = {}
        if not is_zero_shot(self.trainer):
            chosen["DATASET.NUM_SHOTS"] = str(self.shots)
        term = split_trainer(self.trainer)[1]
        if term and self.lam is not None:
            chosen[f"TRAINER.{TERMS[term].node}.LAMBDA"] = number_text(self.lam)
        if term and self.form is not None:
            chosen[f"TRAINER.{TERMS[term].node}.FORM"] = self.form
        if self.split != "test":
            chosen["TEST.SPLIT"] = self.split
        if self.classes != "all":
            chosen["DATASET.SUBSAMPLE_CLASSES"] = self.classes
        return chosen

    @property
    def setting(self) -> str:
        """The part of the directory between the trainer and the seed."""
        parts = (
            self.backbone.replace("/", "-"),
            "" if is_zero_shot(self.trainer) else f"{self.shots}shots",
            "" if self.lam is None else f"lambda{number_text(self.lam)}",
            "" if self.form == DEFAULT_FORM else self.form,
            self.tag,
            self.source and f"from_{self.source}",
            "" if self.classes == "all" else self.classes,
            "" if self.split == "test" else self.split,
            self.calibrator,
        )
        return "_".join(filter(None, parts))

    @property
    def path(self) -> Path:
        """Where the run lives below the output directory."""
        return Path(self.dataset, self.trainer, self.setting, f"seed{self.seed}")

    def __str__(self) -> str:
        return self.path.as_posix()


def _needs(run: Run) -> Iterator[Run]:
    """What has to be done before a run."""
    if run.training:
        yield run.training
    if plain := run.uncalibrated:
        yield plain
        if run.labels in ("val", "map"):
            yield replace(plain.training or plain, split="val")
        if run.calibrator in LABEL_FREE:
            zero_shot = replace(plain, trainer="ZeroshotCLIP", shots=0, seed=1, source="")
            zero_shot = replace(zero_shot, lam=None, form=None)
            yield zero_shot
            if run.classes == "new":
                yield replace(zero_shot, classes="base")


def with_needs(runs: Iterable[Run]) -> list[Run]:
    """The runs, each once and preceded by what it evaluates, calibrates or is fitted on."""
    needed: dict[Run, None] = {}
    for run in runs:
        needed |= dict.fromkeys([*_needs(run), run])
    return list(needed)
