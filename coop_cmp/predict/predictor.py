"""Use a trained run: class probabilities of any images."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dassl.data.datasets import Datum, build_dataset
from PIL import Image
from scipy.special import softmax

from coop_cmp.calibrate.storage import Calibrator, StoredCalibrator, read_calibrator
from coop_cmp.config.defaults import method_of
from coop_cmp.errors import UserError
from coop_cmp.predict.answers import Answers, image_files
from coop_cmp.predict.rebuild import logits_of, quiet, rebuild
from coop_cmp.predict.selective import Threshold, choose_threshold
from coop_cmp.runs.identity import CALIBRATOR, Identity, read_identity
from coop_cmp.runs.project import find_root
from coop_cmp.runs.records import (
    PREDICTIONS_FILE,
    RESULTS_FILE,
    read_predictions,
    read_results,
)


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
    ) -> Answers:
        """Class probabilities of images, by the same steps as in the run's own test.

        Args:
            images: Image files, folders (all images below them) or PIL images; one or many.
            threshold: The least confidence of an answer, as :meth:`threshold` chooses it.
        """
        given = [images] if isinstance(images, str | Path | Image.Image) else list(images)
        with tempfile.TemporaryDirectory() as folder:
            files = list(image_files(given, Path(folder)))
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
        needed = [logits_of(t, items) for t in (self.trainer, self.zero_shot) if t is not None]
        return self.calibrator(*needed) if self.calibrator else needed[0]


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
        calibrator: What ``python -m coop_cmp.cli.calibrate`` made of the run or of a test of its model:
            a directory, or the calibrator.safetensors in it; or a function of logits [N, C].
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
    stored = read_calibrator(calibrator) if isinstance(calibrator, str | Path) else None
    names = _classes(folder, classnames, stored)

    def make(of: Identity) -> Any:
        here = {"DEVICE": device, **_other_precision(of, precision)}
        with quiet():
            return rebuild(of, names, here, Path(project or find_root()).resolve())

    trainer = make(identity)
    if trainer.trainable:
        with quiet():
            trainer.load_model(str(folder))
    _refuse_other(folder, trainer)
    if stored is None:
        return Predictor(trainer, calibrator)  # type: ignore[arg-type]
    stored.refuse_other(identity, trainer.facts()["checkpoint"])
    if stored.zero_shot is None:
        return Predictor(trainer, stored.calibrator)
    zero_shot = make(stored.zero_shot)
    if zero_shot.weights["digest"] != stored.zero_shot_weights:
        raise UserError("the calibrator takes logits of other weights than those that are there")
    return Predictor(trainer, stored.calibrator, zero_shot)


def _classes(
    folder: Path, wanted: Sequence[str] | None, stored: StoredCalibrator | None
) -> list[str]:
    """The classes to predict: those that are wanted, of the calibrator or of the run."""
    own = stored.classnames if stored else None
    if own and wanted and own != list(wanted):
        raise UserError(
            f"the calibrator has values for each of the classes {', '.join(own)}, and cannot be "
            "used for others; a temperature and SaLS can"
        )
    return list(wanted or own or read_predictions(folder / PREDICTIONS_FILE).classnames)


def _other_precision(identity: Identity, precision: str) -> dict[str, str]:
    """The setting that changes a method's precision."""
    method = method_of(identity.settings["TRAINER.NAME"])
    return {f"TRAINER.{method.node}.PREC": precision} if precision and method else {}


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
