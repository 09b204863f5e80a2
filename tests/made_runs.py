"""Finished runs made up for tests: what train.py leaves, with numbers of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.files import write_json
from coop_cmp.metrics import Samples
from coop_cmp.metrics.panel import measure
from coop_cmp.runs.identity import RUN_FILE, Identity
from coop_cmp.runs.outputs import image_numbers, images_digest
from coop_cmp.runs.project import Project
from coop_cmp.runs.records import REQUIRED_METRICS, write_results
from coop_cmp.runs.run import Run, is_zero_shot
from coop_cmp.runs.store import store

SETTINGS = {
    "TRAINER.NAME": "CoOp",
    "DATASET.NAME": "Digits",
    "DATASET.NUM_SHOTS": 4,
    "DATASET.SUBSAMPLE_CLASSES": "all",
    "MODEL.BACKBONE.NAME": "GlyphCLIP",
    "TEST.SPLIT": "test",
    "SEED": 1,
}


def record_of(identity: Identity, **fields: Any) -> dict[str, Any]:
    """The record of a run; metrics that are not given are 0.5."""
    trainable = int(not is_zero_shot(identity.settings["TRAINER.NAME"]))
    record = {
        **identity.as_record(),
        "weights": {"name": "openai", "digest": "0"},
        "checkpoint": "0",
        "images": None,
        "labels": "0",
        "sizes": {"classes": 2, "test": 100, "train": 80, "trainable": trainable},
        "seconds": {"total": 2.0, "test": 1.0},
        "machine": {"host": "here", "device": "cpu"},
        "versions": {"python": "3"},
        "commit": None,
        "fit": {},
        "files": {},
        "notes": [],
        **fields,
    }
    metrics = dict.fromkeys(REQUIRED_METRICS, 0.5) | {"gap": 0.1} | fields.get("metrics", {})
    return record | {"metrics": metrics}


def write_run(
    folder: Path,
    settings: dict[str, Any],
    logits: np.ndarray,
    labels: np.ndarray,
    classnames: Sequence[str],
    *,
    training: Identity | None = None,
    names: Sequence[str] | None = None,
    text_features: np.ndarray | None = None,
    **fields: Any,
) -> Path:
    """Write all files of a run with these predictions and the metrics that they give.

    Args:
        settings: By key, in place of those in ``SETTINGS``.
        names: Of the images.
        fields: Of the record.
    """
    identity = Identity({**SETTINGS, **settings}, training)
    n_bins, closed = settings.get("TEST.N_BINS", 10), settings.get("TEST.BIN_CLOSED", "right")
    images = image_numbers(names or [str(i) for i in range(len(labels))])
    samples = Samples(logits, labels, from_logits=True)
    metrics = measure(samples, None, n_bins, closed)
    write_json(folder / RUN_FILE, identity.as_record())
    record = record_of(identity, **{"images": images_digest(images), "metrics": metrics, **fields})
    store(folder, record, samples, list(classnames), images, text_features)
    return folder


def finish(project: Project, run: Run, **metrics: float) -> Path:
    """Write the results of a planned run as if it were done, with these metrics as fractions."""
    folder, identity = project.directory(run), project.identity(run)
    learned = None if is_zero_shot(run.trainer) else f"learned by {run.training or run}"
    write_json(folder / RUN_FILE, identity.as_record())
    record = record_of(identity, checkpoint=learned, metrics=metrics)
    write_results(folder / "results.json", record)
    return folder


def finish_with(
    project: Project,
    run: Run,
    confidence: np.ndarray,
    correct: np.ndarray,
    names: list[str] | None = None,
    **metrics: float,
) -> Path:
    """The same with outcomes and predictions over two classes; the label is always class 0."""
    logit = np.log(confidence / (1 - confidence)) * np.where(correct, 1, -1)
    logits = np.stack([logit, np.zeros_like(logit)], axis=1)
    identity = project.identity(run)
    learned = None if is_zero_shot(run.trainer) else f"learned by {run.training or run}"
    return write_run(
        project.directory(run),
        dict(identity.settings),
        logits,
        np.zeros(len(confidence), dtype=np.int64),
        ["yes", "no"],
        training=identity.training,
        names=names,
        checkpoint=learned,
        **({"metrics": metrics} if metrics else {}),
    )
