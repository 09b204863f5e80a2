"""What a reader of a table must know about its runs: each note once, with the runs it is about.

Most notes are stored with a run. Whether it collapsed shows only beside others: its accuracy is
more than 20 points below the median of the other seeds, or below zero-shot CLIP on the same images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FAR_BELOW = 0.2
COLLAPSED = "collapsed: accuracy more than 20 points below the median of the other seeds"
BELOW_ZERO_SHOT = "accuracy below that of zero-shot CLIP"


@dataclass(frozen=True)
class Note:
    """A note on some runs, which are named as in the index of the frame."""

    text: str
    runs: tuple[str, ...]

    def __str__(self) -> str:
        where = self.runs[0] if len(self.runs) == 1 else f"{len(self.runs)} runs"
        return f"{self.text} ({where})"


def notes(texts: pd.Series | Mapping[str, str]) -> list[Note]:
    """Return the notes in a frame's column ``notes``, or in a part, those of most runs first."""
    found: dict[str, list[str]] = {}
    for name, joined in texts.items():
        for text in filter(None, joined.split("; ")):
            found.setdefault(text, []).append(str(name))
    made = [Note(text, tuple(runs)) for text, runs in found.items()]
    return sorted(made, key=lambda note: -len(note.runs))


def add_notes(rows: Sequence[dict[str, Any]]) -> None:
    """Add to rows of the frame what shows only beside the others."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    zero_shot = {
        _place(row): row["accuracy"]
        for row in rows
        if row["trainer"] == "ZeroshotCLIP" and not row["calibrator"]
    }
    for row in (row for row in rows if row["trainable"]):
        others = [o["accuracy"] for o in groups[row["group"]] if o["seed"] != row["seed"]]
        texts = [row["notes"]]
        if others and row["accuracy"] < median(others) - FAR_BELOW:
            texts.append(COLLAPSED)
        # What was learned on other images or classes need not be better there.
        at_home = row["trained_on"] == row["dataset"] and row["classes"] != "new"
        if at_home and row["accuracy"] < zero_shot.get(_place(row), 0.0):
            texts.append(BELOW_ZERO_SHOT)
        row["notes"] = "; ".join(filter(None, texts))


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("test_set", "images", "labels", "backbone", "weights.digest")
    return tuple(row.get(name) for name in names)
