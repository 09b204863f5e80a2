"""coop_cmp/report/tradeoff.py: the picture shows the table's values and intervals."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from coop_cmp.errors import UserError
from coop_cmp.report.collect import Value
from coop_cmp.report.definitions import table
from coop_cmp.report.tradeoff import Point, draw_tradeoff, panels, save_tradeoff, tradeoff_figure
from coop_cmp.runs.compare import Difference
from tests.commands import command

main = command("tables")

TABLE = table("embedded_calibrators", (1,))


def made_up(cell) -> Value:
    """Zero-shot CLIP and B-PEFT are plain or sure; vector scaling is far off; others are unsure."""
    if not cell.runs:
        return Value({})
    center = {"accuracy": 0.8, "ece": 0.05, "nll": 1.0}[cell.metric]
    if cell.changed_by == "vector":
        center -= 0.3 if cell.metric == "accuracy" else 0
    sure = cell.changed_by == "BPEFT"
    change = Difference(0.01, 0.005 if sure else -0.02, 0.04, 0.01 if sure else 0.4, 1)
    return Value({1: center}, change=change if cell.baseline else None)


VALUES = {cell: made_up(cell) for cell in TABLE.cells()}


def test_points_carry_the_values_and_intervals_of_the_table():
    found = panels(TABLE, VALUES)
    assert list(found) == [(b.title, place) for b in TABLE.blocks for place in ("seen", "new")]
    points = {point.name: point for point in found["CoOp, 1 shot", "seen"]}
    assert points["plain"].kind == ""
    assert points["plain"].arms.tolist() == [[0, 0], [0, 0]]
    assert points["BPEFT"].holds
    assert points["BPEFT"].place == pytest.approx([80, 5])
    assert points["BPEFT"].arms == pytest.approx(np.array([[0.5, 3.0]] * 2))
    kinds = {"CMP": "while training", "temperature": "after training", "BPEFT": "another method"}
    assert {name: points[name].kind for name in kinds} == kinds
    assert "dac" not in points, "it is for new classes alone"
    assert "dac" in {point.name for point in found["CoOp, 1 shot", "new"]}


def test_what_is_sure_is_named_and_what_is_far_off_does_not_stretch_the_picture(tmp_path):
    figure = tradeoff_figure(TABLE, VALUES)
    panel = next(axes for axes in figure.axes if axes.get_title() == "CoOp, 1 shot, seen")
    texts = [text.get_text() for text in panel.texts]
    assert {"plain", "CMP", "BPEFT"} < set(texts)
    assert "LS" not in texts
    assert "outside: vector (50, 5)" in texts
    assert panel.get_xlim()[0] > 70
    save_tradeoff(TABLE, VALUES, tmp_path / "one.svg")
    save_tradeoff(TABLE, VALUES, tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_points_that_are_all_far_from_each_other_are_drawn():
    places = np.array([[50.0, 5.0], [90.0, 5.0]])
    points = [Point(str(place), "", place, np.zeros((2, 2)), False) for place in places]
    axes = Figure().subplots()
    draw_tradeoff(axes, points)
    assert axes.get_xlim()[0] < 50
    assert axes.get_xlim()[1] > 90


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("embedded_methods", "--picture", "a.gif"), "has to end in one of .png, .svg, .pdf"),
        (("all", "--picture", "a.png"), "one table at a time"),
        (("embedded_methods", "--no-intervals", "--picture", "a.png"), "with its intervals"),
    ],
)
def test_a_picture_that_cannot_be_is_refused_before_anything_is_read(tmp_path, words, reason):
    with pytest.raises(UserError, match=reason):
        main(["show", "--output", str(tmp_path), *words])


def test_a_table_without_both_is_refused():
    one = table("lambda_calibration_results", (1,))
    with pytest.raises(UserError, match="no accuracies beside ECEs"):
        panels(one, {cell: Value({1: 0.5}) for cell in one.cells()})
