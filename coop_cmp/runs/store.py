"""Store what a test has shown: predictions, outcomes and the record, in this order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.metrics import Samples
from coop_cmp.runs import circumstances
from coop_cmp.runs.outputs import (
    OUTCOMES_FILE,
    PREDICTIONS_FILE,
    Outcomes,
    labels_digest,
    write_outcomes,
    write_predictions,
)
from coop_cmp.runs.records import RESULTS_FILE, write_results


def store(
    folder: Path,
    record: Mapping[str, Any],
    samples: Samples,
    classnames: list[str],
    images: np.ndarray,
    text_features: Any = None,
) -> dict[str, Any]:
    """Write the files of a run, and return its record.

    Args:
        record: What it is and how it was made, with its metrics.
        samples: The test's logits and labels.
        classnames: Of the C classes.
        images: The numbers of the images, uint64 [N].
        text_features: Of the classifier, where there is one for all images.
    """
    metrics = {k: None if v is None or math.isnan(v) else v for k, v in record["metrics"].items()}
    arrays = (samples.labels, samples.predicted, samples.confidence, samples.nll)
    outcomes = Outcomes(images, *(np.asarray(values.cpu()) for values in arrays))
    logits, labels = samples.matrix, samples.labels
    predictions = write_predictions(
        folder / PREDICTIONS_FILE, logits, labels, classnames, text_features, samples.scores
    )
    record = {
        **record,
        "metrics": metrics,
        "labels": labels_digest(outcomes.labels, classnames),
        "files": {
            PREDICTIONS_FILE: predictions,
            OUTCOMES_FILE: write_outcomes(folder / OUTCOMES_FILE, outcomes),
        },
        "seconds": {"total": circumstances.seconds_since_start(), **record.get("seconds", {})},
        "versions": circumstances.versions(),
        "commit": circumstances.commit(),
    }
    # The results come last: a directory that has them has everything.
    write_results(folder / RESULTS_FILE, record)
    return record


def lookup(cfg: Any, key: str, default: Any) -> Any:
    """``cfg.A.B`` for the key "A.B", or the default where a checkout's config has no such node."""
    for name in key.split("."):
        cfg = getattr(cfg, name, None)
        if cfg is None:
            return default
    return cfg
