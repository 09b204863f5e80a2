"""Finished runs made up for tests: what train.py leaves, with numbers of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.files import write_json
from coop_cmp.runs import Outcomes, write_outcomes, write_predictions, write_results
from coop_cmp.runs.identity import RUN_FILE
from coop_cmp.runs.project import Project
from coop_cmp.runs.records import REQUIRED_METRICS, image_numbers, images_digest
from coop_cmp.runs.run import Run, is_zero_shot


def record_of(project: Project, run: Run, **metrics: float) -> dict[str, Any]:
    """The record of a run with these metrics, as fractions; all others are 0.5."""
    learned = None if is_zero_shot(run.trainer) else f"learned by {run.training or run}"
    return {
        **project.identity(run).as_record(),
        "weights": {"name": "openai", "digest": "0"},
        "checkpoint": learned,
        "images": None,
        "metrics": {**dict.fromkeys(REQUIRED_METRICS, 0.5), "gap": 0.1, **metrics},
        "sizes": {"classes": 2, "test": 100, "train": 80, "trainable": int(learned is not None)},
        "seconds": {"total": 2.0, "test": 1.0},
        "machine": {"host": "here", "device": "cpu"},
        "versions": {"python": "3"},
        "commit": None,
        "notes": [],
    }


def finish(project: Project, run: Run, **metrics: float) -> Path:
    """Write the results of a run as if it were done; see :func:`record_of`."""
    folder = project.directory(run)
    record = record_of(project, run, **metrics)
    write_json(folder / RUN_FILE, project.identity(run).as_record())
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
    folder = finish(project, run, **metrics)
    names = [str(i) for i in range(len(confidence))] if names is None else names
    predicted = np.where(correct, 0, 1)
    nll = -np.log(np.where(correct, confidence, 1 - confidence))
    outcomes = Outcomes(image_numbers(names), np.zeros(len(confidence)), predicted, confidence, nll)
    write_outcomes(folder / "outcomes.npz", outcomes)
    logit = np.log(confidence / (1 - confidence)) * np.where(correct, 1, -1)
    logits = np.stack([logit, np.zeros_like(logit)], axis=1)
    write_predictions(folder / "predictions.npz", logits, outcomes.labels, ["yes", "no"])
    record = record_of(project, run, **metrics) | {"images": images_digest(outcomes.images)}
    write_results(folder / "results.json", record)
    return folder
