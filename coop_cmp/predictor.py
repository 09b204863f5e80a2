"""Use a trained run: class probabilities of any images."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from dassl.data.data_manager import build_data_loader
from dassl.data.datasets import Datum, build_dataset
from dassl.data.transforms import build_transform
from dassl.engine import TRAINER_REGISTRY
from PIL import Image
from scipy.special import softmax
from torch import Tensor

from coop_cmp.clip import add_models
from coop_cmp.config import resolve
from coop_cmp.errors import UserError, closest
from coop_cmp.posthoc import Temperature
from coop_cmp.results.identity import CALIBRATOR, Identity, read_identity
from coop_cmp.results.own_data import IMAGE_SUFFIXES
from coop_cmp.results.project import find_root
from coop_cmp.results.records import (
    PREDICTIONS_FILE,
    RESULTS_FILE,
    read_predictions,
    read_results,
)
from coop_cmp.selective import Threshold, choose_threshold
from coop_cmp.settings.defaults import method_of

Calibrator = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Answers:
    """What a model says about N images.

    Attributes:
        images: Their paths, or their numbers for images without one.
        classnames: The C names.
        logits: Calibrated if a calibrator was given, shape [N, C].
        threshold: The least confidence of an answer.
    """

    images: list[str]
    classnames: list[str]
    logits: np.ndarray
    threshold: float = 0.0

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Class probabilities [N, C]."""
        return softmax(self.logits.astype(np.float64), axis=1)

    @property
    def confidence(self) -> np.ndarray:
        """The largest probability of each image [N]."""
        return self.probabilities.max(1)

    @property
    def names(self) -> list[str | None]:
        """The name of the likeliest class of each image; None below the threshold: don't know."""
        best = self.probabilities.argmax(1)
        sure = self.confidence >= self.threshold
        return [self.classnames[k] if ok else None for k, ok in zip(best, sure, strict=True)]

    def top(self, count: int = 5) -> list[list[tuple[str, float]]]:
        """The likeliest classes of each image with their probabilities, the likeliest first."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :count]
        return [
            [(self.classnames[k], float(row[k])) for k in ranked]
            for row, ranked in zip(self.probabilities, order, strict=True)
        ]


class Predictor:
    """A trained model that is ready for images; :func:`load` makes it.

    Attributes:
        trainer: The method's trainer, with what it has learned.
        calibrator: Maps logits [N, C] to calibrated ones.
    """

    def __init__(self, trainer: Any, calibrator: Calibrator | None = None) -> None:
        self.trainer = trainer
        self.calibrator = calibrator

    @property
    def classnames(self) -> list[str]:
        """The names of the classes, in the order of the logits."""
        return list(self.trainer.dm.dataset.classnames)

    def predict(
        self,
        images: str | Path | Image.Image | Iterable[str | Path | Image.Image],
        threshold: Threshold | float = 0.0,
    ) -> Answers:
        """Class probabilities of images, by the same steps as in the run's own test.

        Args:
            images: Image files, folders (all images below them) or PIL images; one or many.
            threshold: The least confidence of an answer, as :meth:`threshold` chooses it.
        """
        given = [images] if isinstance(images, str | Path | Image.Image) else list(images)
        with tempfile.TemporaryDirectory() as folder:
            files = list(_files(given, Path(folder)))
            if not files:
                raise UserError("no images to predict: name image files, or folders that hold some")
            logits = self.logits([Datum(str(path), 0) for _, path in files])
        least = threshold.value if isinstance(threshold, Threshold) else threshold
        return Answers([name for name, _ in files], self.classnames, logits, least)

    def threshold(self, error: float, data: str | Path = "") -> Threshold:
        """The threshold for a wanted error of answers, chosen on the run's validation images.

        Args:
            error: A share of the answers.
            data: The folder that holds the run's data set (DATASET.ROOT).
        """
        cfg = self.trainer.cfg.clone()
        cfg.defrost()
        cfg.DATASET.ROOT = str(data)
        with quiet():
            dataset = build_dataset(cfg)
        if list(dataset.classnames) != self.classnames:
            raise UserError(f"the classes of {cfg.DATASET.NAME} are not those that are predicted")
        if not dataset.val:
            raise UserError(
                f"{cfg.DATASET.NAME} has no validation images to choose a threshold on; give one"
            )
        probabilities = softmax(self.logits(dataset.val), axis=1)
        labels = np.array([item.label for item in dataset.val])
        return choose_threshold(probabilities.max(1), probabilities.argmax(1) == labels, error)

    def logits(self, items: Sequence[Datum]) -> np.ndarray:
        """Calibrated logits [N, C] of listed images."""
        trainer, cfg = self.trainer, self.trainer.cfg
        trainer.dm.dataset.test = items
        with quiet():
            trainer.test_loader = build_data_loader(
                cfg,
                data_source=items,
                batch_size=cfg.DATALOADER.TEST.BATCH_SIZE,
                tfm=build_transform(cfg, is_train=False),
                is_train=False,
            )
            trainer.test("test")
        logits = torch.cat(trainer.evaluator.logits).numpy()
        return self.calibrator(logits) if self.calibrator else logits


def load(
    run: str | Path,
    *,
    classnames: Sequence[str] | None = None,
    calibrator: str | Path | Calibrator | None = None,
    device: str = "",
    precision: str = "",
    project: str | Path | None = None,
) -> Predictor:
    """The trained model of a run, ready to predict.

    Args:
        run: The run's directory.
        classnames: Other classes than those of the run, for methods that take any.
        calibrator: The directory that ``python -m coop_cmp.calibrate temperature`` made of the
            run, or a function of logits [N, C].
        device: ``cpu``, ``cuda``, ...; empty: the best there is.
        precision: ``fp32``, ``amp`` or ``fp16``; empty: that of the run.
        project: The checkout with the method's file; default: the current or this one.

    Raises:
        UserError: It is not a run with a model, or not with the model that its results are of.
    """
    folder = Path(run)
    identity = read_identity(folder)
    if identity is None:
        raise UserError(f'"{folder}" holds no run: name a directory that train.py has written to')
    if any(key.startswith(CALIBRATOR) for key in identity.settings):
        raise UserError(
            f'"{folder}" is a calibrated run: load the run it was made from, with this as its '
            "calibrator"
        )
    if identity.training is not None:
        raise UserError(f'"{folder}" is a test of another run: load the run that was trained')
    names = classnames or read_predictions(folder / PREDICTIONS_FILE).classnames
    if isinstance(calibrator, str | Path):
        calibrator = read_temperature(calibrator, identity)
    with quiet():
        here = {"DEVICE": device, **_other_precision(identity, precision)}
        trainer = _build(identity, list(names), here, Path(project or find_root()).resolve())
        if trainer.trainable:
            trainer.load_model(str(folder))
    _refuse_other(folder, trainer)
    return Predictor(trainer, calibrator)


def read_temperature(folder: str | Path, identity: Identity) -> Temperature:
    """The temperature of a calibrated run, which must have been made of the run at hand."""
    record = read_results(Path(folder, RESULTS_FILE))
    found = Identity.from_record(record)
    plain = {k: v for k, v in found.settings.items() if not k.startswith(CALIBRATOR)}
    if len(plain) == len(found.settings):
        raise UserError(f'"{folder}" is no calibrated run: python -m coop_cmp.calibrate makes one')
    if words := Identity(plain, found.training).differences(identity):
        raise UserError(f'"{folder}" calibrates another run ({words[0]})')
    if "temperature" not in record["metrics"]:
        name = found.settings[f"{CALIBRATOR}NAME"]
        raise UserError(f'"{folder}": {name} leaves no function for new images; temperature does')
    return Temperature(record["metrics"]["temperature"], record["metrics"]["temperature_error"])


def _other_precision(identity: Identity, precision: str) -> dict[str, str]:
    """The setting that changes a method's precision."""
    method = method_of(identity.settings["TRAINER.NAME"])
    return {f"TRAINER.{method.node}.PREC": precision} if precision and method else {}


def _build(identity: Identity, classnames: list[str], here: dict[str, str], root: Path) -> Any:
    """The run's trainer for some classes, without its data, with some settings of one's own."""
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    for package in ("trainers", "datasets"):  # they register what they hold
        import_module(package)
    add_models(root / "configs" / "models")
    name = identity.settings["TRAINER.NAME"]
    if name not in TRAINER_REGISTRY.registered_names():
        hint = closest(name, TRAINER_REGISTRY.registered_names())
        raise UserError(f"the run's trainer {name} is not in {root / 'trainers'}{hint}")
    fixed: dict[str, Any] = {
        "OUTPUT_DIR": "",
        "MODEL.FEATURE_STORE": "",
        "DATALOADER.NUM_WORKERS": 0,
        "TEST.SPLIT": "test",
        "TEST.FINAL_MODEL": "last_step",
        "TEST.EVALUATOR": "Classification",
    }
    cfg = resolve(root, {}, {}, {**identity.settings, **fixed, **here})
    cfg.freeze()

    def no_data(trainer: Any) -> None:
        dataset = SimpleNamespace(classnames=classnames, train_x=[], test=[], image_name=str)
        trainer.dm = SimpleNamespace(dataset=dataset)
        trainer.train_loader_x = trainer.val_loader = trainer.test_loader = None
        trainer.num_classes, trainer.lab2cname = len(classnames), dict(enumerate(classnames))

    kind = TRAINER_REGISTRY.get(name)
    trainer = type(name, (kind,), {"build_data_loader": no_data})(cfg)
    trainer.evaluator = _Collector()
    return trainer


class _Collector:
    """Stands in the place of a trainer's evaluator and keeps all logits."""

    split: str | None = None

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.logits: list[Tensor] = []

    def reset(self) -> None:
        self.logits = []

    def process(self, logits: Tensor, labels: Tensor) -> None:
        self.logits.append(logits.detach().to("cpu", torch.float32))

    def evaluate(self) -> dict[str, float]:
        return {"images": float(sum(map(len, self.logits)))}


def _refuse_other(folder: Path, trainer: Any) -> None:
    path = folder / RESULTS_FILE
    if not path.exists():
        return
    record, facts = read_results(path), trainer.facts()
    if record["weights"].get("digest") != facts["weights"]["digest"]:
        raise UserError(
            f"{path} is of other weights of {trainer.cfg.MODEL.BACKBONE.NAME} than those that are "
            "there now"
        )
    if record["checkpoint"] != facts["checkpoint"]:
        raise UserError(f"{path} is of another model than the one beside it; do the run again")


def _files(given: Iterable[str | Path | Image.Image], scratch: Path) -> Iterator[tuple[str, Path]]:
    """Names and files of images; those without a file are stored without loss in a folder."""
    for number, image in enumerate(given):
        if isinstance(image, Image.Image):
            path = scratch / f"{number}.png"
            image.save(path)
            yield str(number), path
            continue
        path = Path(image).expanduser()
        if path.is_dir():
            found = (file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
            yield from ((str(file), file) for file in sorted(found))
        elif path.is_file():
            yield str(path), path
        else:
            raise UserError(f"{path}: there is no such image or folder")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep to itself what trainers print."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
