"""Use a trained run: class probabilities of any images."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from dassl.data.datasets import Datum, build_dataset
from PIL import Image
from scipy.special import expit, softmax

from coop_cmp.calibrate.storage import Calibrator, StoredCalibrator, read_calibrator
from coop_cmp.config.defaults import method_of
from coop_cmp.datasets.files import IMAGE_SUFFIXES
from coop_cmp.datasets.splits import check_name, same_in_a_prompt
from coop_cmp.errors import UserError
from coop_cmp.predict.selective import Threshold, choose_threshold
from coop_cmp.predict.trainer import logits_of, quiet, trainer_of
from coop_cmp.runs.identity import CALIBRATOR, Identity, read_identity
from coop_cmp.runs.outputs import PREDICTIONS_FILE
from coop_cmp.runs.records import RESULTS_FILE, read_results
from coop_cmp.runs.stored import StoredRun


@dataclass(frozen=True)
class Predicted:
    """The predictions of a model for N images.

    Attributes:
        images: Their paths, or their numbers for images without one.
        classnames: The C names.
        logits: Calibrated if a calibrator was given, shape [N, C].
        threshold: The least confidence of an answer.
        scores: ``softmax`` or ``sigmoid``, which makes probabilities of logits.
    """

    images: list[str]
    classnames: list[str]
    logits: np.ndarray
    threshold: float = 0.0
    scores: str = "softmax"

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Class probabilities [N, C]; those of a sigmoid do not sum to 1."""
        logits = self.logits.astype(np.float64)
        return expit(logits) if self.scores == "sigmoid" else softmax(logits, axis=1)

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
        """Return the likeliest classes of each image with their probabilities, best first."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")[:, :count]
        return [
            [(self.classnames[k], float(row[k])) for k in ranked]
            for row, ranked in zip(self.probabilities, order, strict=True)
        ]

    def rows(self, count: int) -> Iterator[tuple[str, str | None, list[tuple[str, float]]]]:
        """Yield each image with its name and its likeliest classes."""
        return zip(self.images, self.names, self.top(count), strict=True)


class Predictor:
    """A trained model that is ready for images; :func:`load` makes it.

    Attributes:
        trainer: The method's trainer, with what it has learned.
        calibrator: Maps logits [N, C] to calibrated ones.
        zero_shot: The trainer of zero-shot CLIP whose logits the calibrator takes as well.
    """

    def __init__(
        self, trainer: Any, calibrator: Calibrator | None = None, zero_shot: Any = None
    ) -> None:
        self.trainer = trainer
        self.calibrator = calibrator
        self.zero_shot = zero_shot

    @property
    def classnames(self) -> list[str]:
        """The names of the classes, in the order of the logits."""
        return list(self.trainer.dm.dataset.classnames)

    def predict(
        self,
        images: str | Path | Image.Image | Iterable[str | Path | Image.Image],
        threshold: Threshold | float = 0.0,
    ) -> Predicted:
        """Compute class probabilities of images, by the same steps as in the run's own test.

        Args:
            images: Image files, folders (all images below them) or PIL images; one or many.
            threshold: The least confidence of an answer, as :meth:`threshold` chooses it.
        """
        given = [images] if isinstance(images, str | Path | Image.Image) else list(images)
        with tempfile.TemporaryDirectory() as folder:
            files = list(_image_files(given, Path(folder)))
            if not files:
                raise UserError("no images to predict: name image files, or folders that hold some")
            logits = self.logits([Datum(str(path), 0) for _, path in files])
        least = threshold.value if isinstance(threshold, Threshold) else threshold
        scores = self.trainer.cfg.MODEL.SCORES
        return Predicted([name for name, _ in files], self.classnames, logits, least, scores)

    def threshold(self, error: float, data: str | Path = "") -> Threshold:
        """Choose the threshold for a wanted error of answers on the run's validation images.

        Args:
            error: A share of the answers.
            data: The folder that holds the run's data set (DATASET.ROOT).
        """
        cfg = self.trainer.cfg.clone()
        cfg.defrost()
        cfg.DATASET.ROOT = str(data)
        cfg.SEED = max(cfg.SEED, 0)  # of an unseeded run the same images each time
        with quiet():
            dataset = build_dataset(cfg)
        if list(dataset.classnames) != self.classnames:
            raise UserError(f"the classes of {cfg.DATASET.NAME} are not those that are predicted")
        if not dataset.val:
            raise UserError(
                f"{cfg.DATASET.NAME} has no validation images to choose a threshold on; give one"
            )
        logits = self.logits(dataset.val)
        found = Predicted([], self.classnames, logits, scores=cfg.MODEL.SCORES)
        labels = np.array([item.label for item in dataset.val])
        return choose_threshold(found.confidence, logits.argmax(1) == labels, error)

    def logits(self, items: Sequence[Datum]) -> np.ndarray:
        """Compute calibrated logits [N, C] of listed images."""
        needed = [logits_of(t, items) for t in (self.trainer, self.zero_shot) if t is not None]
        return self.calibrator(*needed) if self.calibrator else needed[0]


def load(
    run: str | Path,
    *,
    classnames: Sequence[str] | None = None,
    calibrator: str | Path | Calibrator | None = None,
    device: str = "",
    precision: str = "",
) -> Predictor:
    """Load the trained model of a run, ready to predict.

    Args:
        run: The run's directory.
        classnames: Other classes than those of the run, for methods that take any.
        calibrator: What ``coop-cmp calibrate`` made of the run or of a test of its model: a
            directory, or the calibrator.safetensors in it; or a function of logits [N, C].
        device: ``cpu``, ``cuda``, ...; empty: auto-detected.
        precision: ``fp32``, ``amp`` or ``fp16``; empty: that of the run.

    Raises:
        UserError: It is not a run with a model, or not with the model that its results are of.
    """
    folder = Path(run)
    identity = read_identity(folder)
    if identity is None:
        raise UserError(f'"{folder}" holds no run: name the directory of a trained run')
    if any(key.startswith(CALIBRATOR) for key in identity.settings):
        raise UserError(
            f'"{folder}" is a calibrated run: load the run it was made from, with this as its '
            "calibrator"
        )
    if identity.training is not None:
        raise UserError(f'"{folder}" is a test of another run: load the run that was trained')
    stored = read_calibrator(calibrator) if isinstance(calibrator, str | Path) else None
    path = folder / RESULTS_FILE
    left = StoredRun(folder / PREDICTIONS_FILE, read_results(path) if path.exists() else {})
    names = _classes(left, classnames, stored)

    def make(of: Identity) -> Any:
        here, method = {"DEVICE": device}, method_of(of.settings["TRAINER.NAME"])
        if precision and method:
            here[f"TRAINER.{method.node}.PREC"] = precision
        return trainer_of(of, names, here)

    trainer = make(identity)
    if trainer.trainable:
        with quiet():
            trainer.load_model(str(folder))
    _refuse_other(left, trainer)
    if stored is None:
        return Predictor(trainer, calibrator)  # type: ignore[arg-type]
    stored.refuse_other(identity, trainer.facts()["checkpoint"])
    if stored.zero_shot is None:
        return Predictor(trainer, stored.calibrator)
    zero_shot = make(stored.zero_shot)
    if zero_shot.weights["digest"] != stored.zero_shot_weights:
        raise UserError("the calibrator needs logits of other weights than those found")
    return Predictor(trainer, stored.calibrator, zero_shot)


def _image_files(
    given: Iterable[str | Path | Image.Image], scratch: Path
) -> Iterator[tuple[str, Path]]:
    """Yield names and files of images; those without a file are stored without loss in a folder."""
    for number, image in enumerate(given):
        if isinstance(image, Image.Image):
            path = scratch / f"{number}.png"
            image.save(path)
            yield str(number), path
            continue
        path = Path(image).expanduser()
        if path.is_dir():
            named = (file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
            found = (file for file in named if file.is_file())  # a pipe could block for ever
            yield from ((str(file), file) for file in sorted(found))
        elif path.is_file():
            yield str(path), path
        else:
            raise UserError(f"{path}: there is no such image or folder")


def _classes(
    left: StoredRun, wanted: Sequence[str] | None, stored: StoredCalibrator | None
) -> list[str]:
    """The classes to predict: those that are wanted, of the calibrator or of the run."""
    own = stored.classnames if stored else None
    if own and wanted and own != list(wanted):
        raise UserError(
            f"the calibrator has values for each of the classes {', '.join(own)}, and cannot be "
            "used for others; a temperature and SaLS can"
        )
    for name in wanted or ():
        check_name(name, "classes")
    if twice := same_in_a_prompt(wanted or ()):
        raise UserError(f"classes: {twice[0]!r} and {twice[1]!r} read the same in a prompt")
    return list(wanted or own or left.predictions.classnames)


def _refuse_other(left: StoredRun, trainer: Any) -> None:
    if not left.record:
        return
    path, facts = left.folder / RESULTS_FILE, trainer.facts()
    if left.record["weights"].get("digest") != facts["weights"]["digest"]:
        raise UserError(
            f"{path} was made with other weights of {trainer.cfg.MODEL.BACKBONE.NAME} than those "
            "found now"
        )
    if left.record["checkpoint"] != facts["checkpoint"]:
        raise UserError(f"{path} is of another model than the one beside it; do the run again")
