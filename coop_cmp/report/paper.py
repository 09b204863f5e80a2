"""The numbers that the paper prints, and where they do not agree with each other."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import mean

from coop_cmp.runs.run import shots_text

METRIC_NAMES = {"acc": "accuracy", "ece": "ece", "ace": "ace", "mce": "weighted_mce"}
"""Our names of the paper's metrics. Its MCE lies below its ECE everywhere, which a maximum of bin
gaps cannot do but a maximum of count-weighted gaps always does: it must have been the latter."""

AVERAGES = ("Avg(11)", "Avg(target)")
SOURCE = "ImageNet"
COLUMNS_OF = {"calibration_metrics": "all_dataset_calibration"}
"""A table that repeats the averages of another one, which has the columns."""


@dataclass(frozen=True)
class Printed:
    """One printed number, in percent, with the labels of its table."""

    table: str
    backbone: str
    shots: int
    method: str
    dataset: str
    metric: str
    text: str

    @property
    def value(self) -> float:
        return float(self.text)

    @property
    def half_unit(self) -> float:
        """Half of the last printed digit: what rounding can have taken away."""
        decimals = len(self.text.partition(".")[2])
        return 0.5 * 10.0**-decimals


@cache
def printed_numbers() -> tuple[Printed, ...]:
    """All numbers of the paper's ten tables, in the order in which they are printed."""
    with files("coop_cmp.report").joinpath("paper.csv").open(encoding="utf-8") as file:
        rows = [
            Printed(table, backbone, int(shots), method, dataset, metric, value)
            for table, backbone, shots, method, dataset, metric, value in list(csv.reader(file))[1:]
        ]
    return tuple(_with_accuracies(rows))


def _with_accuracies(rows: list[Printed]) -> list[Printed]:
    """Name the metric of the one table whose two halves the data file does not tell apart.

    Both halves of ``benchmarks_calibration_results`` stand there as ECE; in the paper the first
    half, five methods with accuracies from 15 to 88, is headed ACC.
    """
    name = "benchmarks_calibration_results"
    places = [k for k, row in enumerate(rows) if row.table == name]
    for k in places[: len(places) // 2]:
        rows[k] = replace(rows[k], metric="acc")
    return rows


def average_notes(table: str) -> list[str]:
    """Where a printed average is not the mean of its columns, beyond rounding."""
    table = COLUMNS_OF.get(table, table)
    rows: dict[tuple[int, str, str], list[Printed]] = defaultdict(list)
    for number in printed_numbers():
        if number.table == table:
            rows[number.shots, number.method, number.metric].append(number)
    notes = []
    for (shots, method, metric), cells in rows.items():
        for average in (cell for cell in cells if cell.dataset in AVERAGES):
            left_out = SOURCE if average.dataset == "Avg(target)" else None
            columns = [c for c in cells if c.dataset not in (*AVERAGES, left_out)]
            if not columns:
                continue
            actual = mean(c.value for c in columns)
            slack = average.half_unit + mean(c.half_unit for c in columns)
            if abs(actual - average.value) > slack + 1e-9:
                where = f"{method}, {shots_text(shots)}" if shots not in (0, 8) else method
                notes.append(
                    f"{metric} of {where}: printed {average.text}, mean of its columns {actual:.2f}"
                )
    return notes
