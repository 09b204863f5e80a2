"""Accuracy against ECE of a table's rows, drawn: what each changes, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coop_cmp.errors import UserError
from coop_cmp.losses.names import TERMS
from coop_cmp.report.collect import Value
from coop_cmp.report.figures import LOOK, save
from coop_cmp.report.groups import COLOURS
from coop_cmp.report.layout import Cell, Table

FAR = 12.0  # percent: points further from the others are named at the edge, not drawn
KINDS = {
    "while training": (COLOURS[1], "s"),
    "after training": (COLOURS[0], "o"),
    "another method": (COLOURS[2], "D"),
}


@dataclass(frozen=True, eq=False)
class Point:
    """A row in one place: accuracy and ECE in percent, and the intervals of their changes.

    Attributes:
        arms: How far the intervals reach [2, 2]: of accuracy and ECE, below and above; zeros for
            the method that the others change.
        holds: Whether a change there, of any metric, is significant.
    """

    name: str
    kind: str
    place: np.ndarray
    arms: np.ndarray
    holds: bool


def panels(table: Table, values: Mapping[Cell, Value]) -> dict[tuple[str, str], list[Point]]:
    """The points by block and place, such as ("CoOp, 8 shots", "new").

    Raises:
        UserError: No block has columns of accuracy and of ECE.
    """
    found: dict[tuple[str, str], list[Point]] = {}
    for block in table.blocks:
        heads = [head.partition(", ")[2] for head in block.columns]
        for name, row in zip(block.rows, block.cells, strict=True):
            for place in dict.fromkeys(heads):
                cells = [cell for cell, head in zip(row, heads, strict=True) if head == place]
                done = {c.metric: (c, values[c]) for c in cells if values[c].by_seed}
                if {"accuracy", "ece"} <= set(done):
                    found.setdefault((block.title, place), []).append(_point(name, done))
    if not found:
        raise UserError(f"{table.name} has no accuracies beside ECEs, or nothing is done yet")
    return found


def _point(name: str, done: Mapping[str, tuple[Cell, Value]]) -> Point:
    cell, _ = done["accuracy"]
    known = [done[metric][1] for metric in ("accuracy", "ece")]
    center = [float(np.mean(list(value.by_seed.values()))) for value in known]
    changes = [value.change for value in known if value.change is not None]
    arms = [[c.estimate - c.low, c.high - c.estimate] for c in changes] or [[0.0, 0.0]] * 2
    holds = any(value.change.holds for _, value in done.values() if value.change)
    return Point(name, _kind(cell), 100 * np.array(center), 100 * np.array(arms), holds)


def _kind(cell: Cell) -> str:
    """Which of the kinds changes the method, "" for a plain one."""
    if cell.runs[0][0].calibrator:
        return "after training"
    if not cell.changed_by:
        return ""
    return "while training" if cell.changed_by in TERMS else "another method"


def draw_tradeoff(axes: Axes, points: list[Point]) -> None:
    """One panel: the plain methods as stars, what changes them as crosses of intervals."""
    middle = np.median([point.place for point in points], 0)
    near = [point for point in points if (np.abs(point.place - middle) < FAR).all()] or points
    for point in near:
        x, y = map(float, point.place)
        if point.kind:
            colour, marker = KINDS[point.kind]
            xerr, yerr = point.arms[:, :, None]
            look: dict[str, Any] = {"fmt": marker, "color": colour, "markersize": 3.5}
            if not point.holds:
                look |= {"alpha": 0.4, "markerfacecolor": "white", "zorder": 2}
            axes.errorbar(x, y, yerr, xerr, elinewidth=0.6, **{"zorder": 3, **look})
        else:
            axes.plot(x, y, "*", color="black", markersize=9, zorder=4)
        if point.holds or not point.kind or point.name == "CMP":
            offset = (3, -7) if point.name == "CMP" else (3, 3)
            axes.annotate(
                point.name, (x, y), offset, textcoords="offset points", fontsize=6, zorder=5
            )
    if far := [point for point in points if point not in near]:
        names = ", ".join(f"{p.name} ({p.place[0]:.0f}, {p.place[1]:.0f})" for p in far)
        axes.text(0.02, 0.98, f"outside: {names}", va="top", fontsize=6, transform=axes.transAxes)
    # Long arms are cut at the edge: they would hide where the points are.
    low, high = np.min([p.place for p in near], 0), np.max([p.place for p in near], 0)
    middle, half = (low + high) / 2, np.maximum(0.6 * (high - low), 2.0)
    axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
    axes.set_ylim(0, 1.15 * high[1] + 1)
    axes.set(xlabel="accuracy (%)", ylabel="ECE (%)")


def tradeoff_figure(table: Table, values: Mapping[Cell, Value]) -> Figure:
    """A row of panels per block of the table, a column per place."""
    found = panels(table, values)
    titles = list(dict.fromkeys(title for title, _ in found))
    places = list(dict.fromkeys(place for _, place in found))
    figure = Figure((2.6 + 2.6 * len(places), 0.5 + 2.7 * len(titles)), layout="constrained")
    axes = figure.subplots(len(titles), len(places), squeeze=False)
    for (title, place), points in found.items():
        one = axes[titles.index(title)][places.index(place)]
        draw_tradeoff(one, points)
        one.set_title(", ".join(filter(None, (title, place))))
    handles = [
        axes[0][0].plot([], [], marker, color=colour, markersize=4, label=kind)[0]
        for kind, (colour, marker) in KINDS.items()
        if any(point.kind == kind for points in found.values() for point in points)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def save_tradeoff(table: Table, values: Mapping[Cell, Value], path: Path) -> None:
    """Draw a table into a file whose ending says the format."""
    with rc_context(LOOK):
        save(tradeoff_figure(table, values), path)
