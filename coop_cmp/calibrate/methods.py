"""The calibrators by name, applied to stored runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from coop_cmp.calibrate.affine import fit_dirichlet, fit_vector
from coop_cmp.calibrate.dac import DAC, class_factors
from coop_cmp.calibrate.onevsrest import fit_histogram, fit_isotonic
from coop_cmp.calibrate.runs import Archive, Calibrated
from coop_cmp.calibrate.sals import scale_to_zero_shot
from coop_cmp.calibrate.temperature import PRIOR, Temperature, fit_temperature
from coop_cmp.errors import UserError
from coop_cmp.runs.run import LABEL_FREE
from coop_cmp.runs.stored import StoredRun

FITS: dict[str, Callable[..., Callable[[np.ndarray], np.ndarray]]] = {
    "vector": fit_vector,
    "dirichlet": fit_dirichlet,
    "isotonic": fit_isotonic,
    "histogram": fit_histogram,
}
CALIBRATORS = ("temperature", *FITS, *LABEL_FREE)
OF_TRAINING = (
    "a model is right on nearly all images it was trained on, so the best temperature there runs "
    "to 0 and every other calibrator to certainty; use val (the few-shot validation images) or "
    "crossfit (shots held out in turn)"
)
SAME_IMAGES = "a test of ZeroshotCLIP on the same images"


def calibrate(method: str, run: StoredRun, archive: Archive, labels: str = "val") -> Calibrated:
    """Calibrate a stored run.

    Args:
        archive: Where the runs are that it needs.
        labels: What it is fitted on: ``val``, ``map``, ``crossfit`` or ``fixed:T``.

    Raises:
        UserError: What the method needs is not there, or must not be used.
    """
    if run.settings.get("MODEL.SCORES") == "sigmoid":
        raise UserError(f"{run.folder}: calibrators are defined for softmax scores (MODEL.SCORES)")
    if method == "sals":
        return _sals(run, archive)
    if method == "dac":
        return _dac(run, archive)
    kind, _, value = labels.partition(":")
    if kind == "fixed":
        return _fixed(method, value)
    fitted_on = archive.fit or find_labels(run, archive, labels)
    for source in fitted_on:
        refuse_as_source(source, run)
    logits = np.concatenate([source.predictions.logits for source in fitted_on])
    true = np.concatenate([source.predictions.labels for source in fitted_on])
    name = method if kind == "val" else f"{method}-{kind}"
    if method == "temperature":
        found = fit_temperature(logits, true, PRIOR if kind == "map" else None)
        return _scaled(found, name, kind)
    if kind == "map":
        raise UserError(f"--labels map is a prior of the temperature; {method} has none")
    if any(source.predictions.classnames != run.predictions.classnames for source in fitted_on):
        raise UserError(
            f"{method} has values for each class, and {run.folder} has other classes than those it "
            "would be fitted on; temperature, SaLS and DAC can be used there"
        )
    fitted = FITS[method](logits, true)
    return Calibrated(fitted, name, kind, f"{method} fitted on {len(true)} labels")


def find_labels(run: StoredRun, archive: Archive, kind: str) -> list[StoredRun]:
    """The runs whose labels may be fitted on."""
    if kind == "train":
        raise UserError(f"--labels train: {OF_TRAINING}")
    if kind == "crossfit":
        return _folds(run, archive)
    if kind not in ("val", "map"):
        raise UserError(f"--labels must be val, map, crossfit or fixed:T, got {kind!r}")
    found = archive.validation(run)
    if len(found) != 1:
        problem = "no test" if not found else f"{len(found)} tests"
        raise UserError(
            f"{run.folder}: {problem} of its model on the validation part below "
            f"{archive.root}; make one (train.py --eval-only --model-dir <the training> "
            "... TEST.SPLIT val, or main.sh and sweep.sh with --validate), or name it with --fit"
        )
    return found


def refuse_as_source(source: StoredRun, run: StoredRun) -> None:
    """Refuse labels that must not be fitted on: of training images, or of those under test."""
    if source.split == "train":
        raise UserError(f"{source.folder}: {OF_TRAINING}")
    if source.split != "val":
        raise UserError(
            f"{source.folder}: a test on the {source.split} part; its labels are for testing, fit "
            "on a run with TEST.SPLIT val"
        )
    if source.record["images"] is not None and source.record["images"] == run.record["images"]:
        raise UserError(f"{source.folder}: these are the images that {run.folder} is tested on")


def _folds(run: StoredRun, archive: Archive) -> list[StoredRun]:
    found = {fold.settings["DATASET.FOLD"]: fold for fold in archive.folds(run)}
    for parts in sorted({name.partition("/")[2] for name in found}):
        wanted = [f"{part}/{parts}" for part in range(1, int(parts) + 1)]
        if all(name in found for name in wanted):
            return [found[name] for name in wanted]
    raise UserError(
        f"{run.folder}: --labels crossfit needs the same training on parts of its shots, tested on "
        "the shots left out: train.py with DATASET.FOLD 1/4 TEST.SPLIT val, then 2/4, 3/4, 4/4; "
        f"found {', '.join(sorted(found)) or 'none'} below {archive.root}"
    )


def _fixed(method: str, value: str) -> Calibrated:
    if method != "temperature":
        raise UserError(f"--labels fixed:T gives a temperature; {method} takes none")
    try:
        found = Temperature(float(value))
    except ValueError as error:
        raise UserError(
            f"--labels fixed:T needs a number above 0, such as fixed:1.16, got {value} ({error})"
        ) from error
    return _scaled(found, f"temperature-fixed{found.value:g}", f"fixed:{found.value:g}")


def _scaled(found: Temperature, name: str, source: str) -> Calibrated:
    numbers = {"temperature": found.value, "temperature_error": found.error}
    note = f"T = {found.value:.4g}"
    if found.labels:
        note += f", standard error {found.error:.1%} of it, from {found.labels} labels"
    return Calibrated(found, name, source, note, numbers)


def _sals(run: StoredRun, archive: Archive) -> Calibrated:
    zero_shot = _one(archive.zero_shot(run), run, archive, SAME_IMAGES)
    if zero_shot.record["images"] != run.record["images"] or not np.array_equal(
        zero_shot.predictions.labels, run.predictions.labels
    ):
        raise UserError(f"{zero_shot.folder}: other images than those of {run.folder}")
    note = "scaled to the range of zero-shot logits"
    return Calibrated(scale_to_zero_shot, "sals", "none", note, zero_shot=zero_shot)


def _dac(run: StoredRun, archive: Archive) -> Calibrated:
    if run.settings.get("DATASET.SUBSAMPLE_CLASSES") != "new":
        raise UserError(
            f"{run.folder}: DAC is for new classes (DATASET.SUBSAMPLE_CLASSES new); on the classes "
            "of the training it changes nothing"
        )
    base = _one(archive.training(run), run, archive, "the training on the base classes")
    zero_shot = _one(archive.zero_shot(run), run, archive, SAME_IMAGES)
    zero_shot_base = _one(
        archive.zero_shot(run, "base"), run, archive, "a test of ZeroshotCLIP on the base classes"
    )
    factors = class_factors(*map(_text_features, (run, zero_shot, base, zero_shot_base)))
    mean = float(factors.mean())
    return Calibrated(DAC(factors), "dac", "none", f"mean factor {mean:.3f}", {"dac_factor": mean})


def _text_features(run: StoredRun) -> np.ndarray:
    if run.predictions.text_features is None:
        raise UserError(
            f"{run.folder}: its predictions hold no text features, which DAC compares; methods "
            "whose classifier depends on the image have none"
        )
    return run.predictions.text_features


def _one(found: Sequence[StoredRun], run: StoredRun, archive: Archive, what: str) -> StoredRun:
    # Zero-shot CLIP has no seed, so several runs of it are one; trainings are told by their digest.
    if not found:
        raise UserError(f"{run.folder}: needs {what}, and there is none below {archive.root}")
    return found[0]
