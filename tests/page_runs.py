"""An output directory for the page: runs with real logits, and names that try to do harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from tests.made_runs import write_run

NASTY = "<img src=x onerror='window.harm=1'>\"</script><script>window.harm=2</script>🐍 & co"
CLASSES = ["ant", NASTY, "<b>bee</b>", "=1+1", "ant"]


def settings_of(trainer: str, seed: int, shots: int = 4, **more: Any) -> dict[str, Any]:
    """The settings of a run, as few as will do."""
    return {"TRAINER.NAME": trainer, "DATASET.NUM_SHOTS": shots, "SEED": seed, **more}


def store_run(folder: Path, settings: dict[str, Any], scale: float = 2.0, n: int = 200) -> Path:
    """What train.py would leave of a run that is the more confident, the larger the scale."""
    rng = np.random.default_rng(crc32(repr(settings).encode()))
    labels = np.arange(n) % len(CLASSES)
    logits = rng.normal(size=(n, len(CLASSES)))
    logits[np.arange(n), labels] += 1.5
    logits = (scale * logits).astype(np.float32)
    curves = {"loss": [[1, 2.0], [2, 1.0]], "acc": [[1, 60.0], [2, 80.0]]}
    if settings["TRAINER.NAME"] == "CoOp_CMP":
        curves["loss_cmp"] = [[1, 0.5], [2, 0.25]]
    fields = {"machine": {"device_name": "here"}, "fit": {"curves": curves}}
    return write_run(folder, settings, logits, labels, CLASSES, **fields)


def store_many(output: Path) -> None:
    """A baseline, its twin with two weights, zero-shot CLIP, two shots, two data sets, halves."""
    cmp = {"TRAINER.CMP.FORM": "ratio"}
    store_run(output / "zero", settings_of("ZeroshotCLIP", 1))
    for seed in (1, 2, 3):
        for shots in (4, 8):
            place = output / f"{shots}shots"
            store_run(place / f"plain/seed{seed}", settings_of("CoOp", seed, shots), 3)
            for lam in (0.01, 0.5):
                settings = settings_of("CoOp_CMP", seed, shots, **cmp)
                settings["TRAINER.CMP.LAMBDA"] = lam
                store_run(place / f"twin{lam}/seed{seed}", settings, 3 - 2 * lam)
        nasty = settings_of("CoOp", seed, **{"DATASET.NAME": NASTY})
        store_run(output / f"nasty/seed{seed}", nasty)
        for half in ("base", "new"):
            settings = settings_of("CoOp", seed, **{"DATASET.SUBSAMPLE_CLASSES": half})
            store_run(output / f"{half}/seed{seed}", settings)
