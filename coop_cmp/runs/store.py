"""Store what a test has shown: predictions, outcomes and the record, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coop_cmp.metrics import Samples
from coop_cmp.runs import circumstances
from coop_cmp.runs.identity import flatten, identify, read_identity
from coop_cmp.runs.records import (
    OUTCOMES_FILE,
    PREDICTIONS_FILE,
    RESULTS_FILE,
    Outcomes,
    image_numbers,
    images_digest,
    write_outcomes,
    write_predictions,
    write_results,
)


def store(
    folder: Path,
    cfg: Any,
    samples: Samples,
    classnames: list[str],
    metrics: Mapping[str, float | None],
    seconds: Mapping[str, float],
    facts: Mapping[str, Any],
) -> None:
    """Write the files of a run.

    Args:
        samples: The test's logits and labels.
        seconds: How long parts of the run took.
        facts: What the trainer knows, each where it does: ``weights`` (dict with ``name`` and
            ``digest``), ``checkpoint`` (digest of what was learned), ``images`` (names of the
            images tested, in their order), ``text_features`` (of the classifier), ``sizes``
            (dict), ``notes`` (list of str), ``device``, ``precision``.
    """
    names, notes = facts.get("images"), list(facts.get("notes", []))
    if names is not None and len(names) != len(samples):
        notes.append("the images tested are not those that the data set lists")
        names = None
    outcomes = outcomes_of(samples, names)
    identity = read_identity(folder) or identify(flatten(cfg))
    record = {
        **identity.as_record(),
        "weights": facts.get("weights", {"name": lookup(cfg, "MODEL.BACKBONE.WEIGHTS", "")}),
        "checkpoint": facts.get("checkpoint"),
        "images": images_digest(outcomes.images) if names is not None else None,
        "metrics": dict(metrics),
        "sizes": {"classes": samples.n_classes, "test": len(samples), **facts.get("sizes", {})},
        "seconds": {"total": circumstances.seconds_since_start(), **seconds},
        "machine": circumstances.machine(facts.get("device"), facts.get("precision")),
        "versions": circumstances.versions(),
        "commit": circumstances.commit(),
        "notes": notes,
    }
    text = facts.get("text_features")
    write_predictions(folder / PREDICTIONS_FILE, samples.matrix, samples.labels, classnames, text)
    write_outcomes(folder / OUTCOMES_FILE, outcomes)
    # The results come last: a directory that has them has everything.
    write_results(folder / RESULTS_FILE, record)


def outcomes_of(samples: Samples, names: Sequence[str] | None = None) -> Outcomes:
    """What the model said about each image; without names images are known by their positions."""
    positions = [str(position) for position in range(len(samples))]
    values = (samples.labels, samples.predicted, samples.confidence, samples.nll)
    arrays = [np.asarray(value.cpu()) for value in values]
    return Outcomes(image_numbers(positions if names is None else names), *arrays)


def lookup(cfg: Any, key: str, default: Any) -> Any:
    """``cfg.A.B`` for the key "A.B", or the default where a checkout's config has no such node."""
    for name in key.split("."):
        cfg = getattr(cfg, name, None)
        if cfg is None:
            return default
    return cfg
