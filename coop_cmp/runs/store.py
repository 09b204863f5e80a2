"""Store what a test has shown: predictions, outcomes and the record, in this order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.metrics import Samples
from coop_cmp.runs import circumstances
from coop_cmp.runs.identity import identify, read_identity
from coop_cmp.runs.outputs import (
    OUTCOMES_FILE,
    PREDICTIONS_FILE,
    Outcomes,
    image_numbers,
    images_digest,
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


def store_test(
    folder: Path,
    cfg: Any,
    samples: Samples,
    classnames: list[str],
    metrics: Mapping[str, float],
    seconds: Mapping[str, float],
    facts: Mapping[str, Any],
) -> None:
    """Write what a test has shown.

    Args:
        samples: The test's logits and labels.
        seconds: How long parts of the run took.
        facts: What the trainer knows, each where it does: ``weights`` (dict with ``name`` and
            ``digest``), ``checkpoint`` (digest of what was learned), ``images`` (names of the
            images tested, in their order), ``text_features`` (of the classifier), ``sizes``
            (dict), ``fit`` (dict, how training went), ``notes`` (list of str), ``device``,
            ``precision``.
    """
    names, notes = facts.get("images"), list(facts.get("notes", []))
    if names is not None and len(names) != len(samples):
        notes.append("the images tested are not those that the data set lists")
        names = None
    # Without names images are known by their positions.
    images = image_numbers(names or [str(position) for position in range(len(samples))])
    identity = read_identity(folder) or identify(cfg)
    record = {
        **identity.as_record(),
        "weights": facts.get("weights", {"name": lookup(cfg, "MODEL.BACKBONE.WEIGHTS", "")}),
        "checkpoint": facts.get("checkpoint"),
        "images": images_digest(images) if names is not None else None,
        "metrics": metrics,
        "sizes": {"classes": samples.n_classes, "test": len(samples), **facts.get("sizes", {})},
        "fit": facts.get("fit", {}),
        "seconds": seconds,
        "machine": circumstances.machine(facts.get("device"), facts.get("precision")),
        "notes": notes,
    }
    store(folder, record, samples, classnames, images, facts.get("text_features"))


def lookup(cfg: Any, key: str, default: Any) -> Any:
    """``cfg.A.B`` for the key "A.B", or the default where a checkout's config has no such node."""
    for name in key.split("."):
        cfg = getattr(cfg, name, None)
        if cfg is None:
            return default
    return cfg
