"""Any byte or value of a stored calibrator changed: the same calibrator, or which file is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save

from coop_cmp.calibrate import (
    DAC,
    Affine,
    Histogram,
    Isotonic,
    Temperature,
    fit_dirichlet,
    fit_histogram,
    fit_isotonic,
    fit_vector,
    scale_to_zero_shot,
)
from coop_cmp.calibrate.storage import (
    StoredCalibrator,
    content_digest,
    read_calibrator,
    write_calibrator,
)
from coop_cmp.errors import UserError, one_line
from coop_cmp.runs.identity import CALIBRATOR_FILE, Identity
from tests.faults.changes import VALUES, other_bytes, tries

NAMES = ["bird", "cat", "Käfer"]
RNG = np.random.default_rng(0)
LOGITS, ZERO_SHOT = RNG.normal(0, 3, (2, 30, 3))
LABELS = RNG.integers(0, 3, 30)
RUN = Identity({"TRAINER.NAME": "CoOp", "DATASET.NAME": "Digits", "SEED": 1, "OPTIM.LR": 0.002})
CALIBRATORS: dict[str, Callable[..., Any]] = {
    "temperature": Temperature(1.4, 0.1, 30),
    "vector": fit_vector(LOGITS, LABELS),
    "dirichlet": fit_dirichlet(LOGITS, LABELS, 0.1),
    "histogram": fit_histogram(LOGITS, LABELS),
    "isotonic": fit_isotonic(LOGITS, LABELS),
    "dac": DAC(np.array([0.9, 1.0, 0.7])),
    "sals": scale_to_zero_shot,
}


@pytest.fixture(params=CALIBRATORS)
def file(request, tmp_path) -> Path:
    calibrator = CALIBRATORS[request.param]
    other = RUN if request.param == "sals" else None
    names = None if request.param in ("temperature", "sals") else NAMES
    write_calibrator(tmp_path, StoredCalibrator(calibrator, RUN, "a1", names, other, "b2"))
    return tmp_path / CALIBRATOR_FILE


def answer(path: Path) -> tuple[Any, ...] | None:
    """What a file's calibrator makes of the logits, and whose it is; None if it is refused."""
    try:
        stored = read_calibrator(path)
    except UserError as error:
        words = one_line(error)  # as a command shows it
    else:
        words = ""
    if words:
        assert str(path) in words
        return None
    logits = stored.calibrator(*([LOGITS, ZERO_SHOT] if stored.zero_shot else [LOGITS]))
    whose = (stored.run, stored.checkpoint, stored.classnames, stored.zero_shot)
    return logits.tobytes(), *whose, stored.zero_shot_weights


def test_any_byte(file, kills):
    whole, first = file.read_bytes(), answer(file)
    assert first is not None
    seen = []

    def check(content: bytes) -> None:
        file.write_bytes(content)
        seen.append(answer(file))
        assert seen[-1] in (None, first)

    tries(30 * kills, other_bytes(whole), check)
    assert None in seen


def test_any_value_that_somebody_writes_with_a_digest(file, kills):
    """No traceback, and no logits that are not finite."""
    arrays = load_file(file)
    with safe_open(file, "np") as whole:
        about = json.loads(whole.metadata()["about"])

    def check(data: st.DataObject) -> None:
        changed, values = json.loads(json.dumps(about)), {k: v.copy() for k, v in arrays.items()}
        place = data.draw(st.sampled_from([*changed, *changed["values"], *values]))
        if place in values:
            spot = data.draw(st.integers(0, values[place].size - 1))
            values[place].flat[spot] = data.draw(st.floats())
        elif place in changed["values"]:
            changed["values"][place] = data.draw(VALUES)
        else:
            changed[place] = data.draw(VALUES)
        text = json.dumps(changed)
        file.write_bytes(save(values, {"about": text, "digest": content_digest(text, values)}))
        found = answer(file)
        assert found is None or np.isfinite(np.frombuffer(found[0])).all()

    tries(30 * kills, st.data(), check)


HALF = np.full((2, 3), 0.5)


@pytest.mark.parametrize(
    "make",
    [
        *(lambda value=value: Temperature(value) for value in (-2, 0, math.nan, 1e-320, math.inf)),
        lambda: Affine(np.ones(2), np.array([0, math.inf]), 4),
        lambda: Affine(np.array([[1, math.nan], [0, 1]]), np.zeros(2), 4),
        lambda: Affine(np.ones((2, 3)), np.zeros(2), 4),
        lambda: Affine(np.ones(2, dtype=int), np.zeros(2), 4),
        lambda: Histogram(2 * HALF + HALF, 4),
        lambda: Histogram(-HALF, 4),
        lambda: Isotonic(HALF, HALF[:, :2], 4),
        lambda: Isotonic(np.array([[0.5, 0.1]]), np.array([[0.1, 0.2]]), 4),
        lambda: Isotonic(HALF, 3 * HALF, 4),
        lambda: DAC(np.array([1.0, -1.0])),
        lambda: DAC(np.array([1.0, math.nan])),
    ],
)
def test_values_that_no_calibrator_can_have_found_are_refused(make):
    with pytest.raises(UserError, match=r"must be|do not fit|needs rising corners"):
        make()
