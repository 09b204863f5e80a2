"""What a run is compared with: the one place that says it, for planned runs and for those on disk.

A method with a training-time term or a calibrator is compared with itself without them, methods
that tune the prompt at test time with zero-shot CLIP, and B-PEFT with CoOp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from coop_cmp.losses.names import split_trainer
from coop_cmp.runs.frame import is_setting
from coop_cmp.runs.run import TEST_TIME, Run

STARTS_FROM = {**dict.fromkeys(TEST_TIME, "ZeroshotCLIP"), "BPEFT": "CoOp"}
"""What methods change that are no term of another and yet start from one."""

Row = Mapping[str, Any]


def change_of(trainer: str, calibrator: str = "") -> str:
    """Return what changes a method, as ``CMP and temperature`` or ``TPT``; "" for a plain one."""
    changes = " and ".join(filter(None, (split_trainer(trainer)[1], calibrator)))
    return changes or (trainer if trainer in STARTS_FROM else "")


def baseline_of(run: Run) -> Run | None:
    """Return the planned run that another is compared with; None for a plain method."""
    method, term = split_trainer(run.trainer)
    trainer = method if term or run.calibrator else STARTS_FROM.get(method)
    plain = replace(run, lam=None, form=None, calibrator="")
    return replace(plain, trainer=trainer) if trainer else None


class Baselines:
    """The rows of a frame that others are compared with: those without term and calibrator."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._by_pair: dict[Any, Row] = {}
        self._by_method: dict[Any, list[Row]] = {}
        for row in rows:
            if not (row["term"] or row["calibrator"]):
                pair = _pair(row)
                self._by_pair |= {pair: row, (*pair, row["images"]): row}
                self._by_method.setdefault(_place(row, row["method"], row), []).append(row)

    def of(self, row: Row) -> Row | None:
        """Return the row that a row is compared with: same settings, seed and test set.

        Methods that start from another have settings of their own; of several baselines on the same
        images the one is taken that shares most of the others.
        """
        if row["term"] or row["calibrator"]:
            on_other_images = self._by_pair.get(_pair(row))
            return self._by_pair.get((*_pair(row), row["images"]), on_other_images)
        method = STARTS_FROM.get(row["method"], "")
        for trainable in (True, False):
            found = self._by_method.get(_place(row, method, {"trainable": trainable}), [])
            if found:
                return min(found, key=lambda other: _differences(row, other))
        return None

    def pairs(self, rows: Iterable[Row]) -> list[tuple[Row, Row]]:
        """Return each row that has a baseline with it."""
        found = [(row, self.of(row)) for row in rows]
        return [(row, baseline) for row, baseline in found if baseline is not None]


def _pair(row: Row) -> tuple[Any, ...]:
    return row["pair"], row["seed"], row["test_set"]


def _place(row: Row, method: str, baseline: Row) -> tuple[Any, ...]:
    """Where a method was tested; with what it was trained on, if it was trained at all."""
    names = ("test_set", "images", "labels", "backbone", "weights.digest", "trained_on")
    trained = (row["shots"], row["seed"]) if baseline["trainable"] else None
    return (method, *(row.get(name) for name in names), trained)


def _differences(row: Row, other: Row) -> int:
    keys = [key for key in other if is_setting(key) and not key.startswith("TRAINER.")]
    return sum(str(row.get(key)) != str(other[key]) for key in keys)
