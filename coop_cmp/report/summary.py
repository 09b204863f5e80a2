"""Runs that differ only in their seed as one line: mean and standard deviation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from tabulate import tabulate

from coop_cmp.sweep.grid import Run, is_zero_shot

COLUMNS = {"accuracy": "accuracy", "ece": "ECE", "ace": "ACE", "mce": "MCE"}


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and the sample standard deviation; one value has no deviation."""
    return mean(values), stdev(values) if len(values) > 1 else None


def percent(values: Sequence[float]) -> str:
    """Fractions as ``81.23 ± 0.45``, in percent; nothing as a dash."""
    if not values:
        return "-"
    center, deviation = mean_and_deviation([100 * value for value in values])
    return f"{center:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def summary(done: Iterable[tuple[Run, Mapping[str, Any]]]) -> str:
    """A table of all settings that were run, in the order in which they came.

    Args:
        done: runs with the content of their ``results.json``.
    """
    groups: dict[Run, list[tuple[int, Mapping[str, float]]]] = defaultdict(list)
    for run, results in done:
        groups[replace(run, seed=0)].append((run.seed, results["metrics"]))
    shown = [name for name in _DETAILS if _is_telling(name, list(groups))]
    rows = []
    for run, members in groups.items():
        seeds = "-" if is_zero_shot(run.trainer) else ", ".join(str(seed) for seed, _ in members)
        details = [_detail(run, name) for name in shown]
        figures = [percent([m[key] for _, m in members]) for key in COLUMNS]
        rows.append([run.trainer, *details, seeds, *figures])
    header = ["trainer", *(_DETAILS[name] for name in shown), "seeds", *COLUMNS.values()]
    table = tabulate(rows, header, tablefmt="github", disable_numparse=True)
    return f"{table}\nPercent; mean ± standard deviation over seeds."


_DETAILS = {
    "dataset": "data set",
    "source": "trained on",
    "backbone": "backbone",
    "shots": "shots",
    "lam": "lambda",
    "form": "form",
    "split": "part",
    "classes": "classes",
    "tag": "tag",
}


def _is_telling(name: str, runs: Sequence[Run]) -> bool:
    """Whether the column would say more than one thing; the penalty's weight always does."""
    said = {_detail(run, name) for run in runs} - ({"-"} if name in ("shots", "form") else set())
    return len(said) > 1


def _detail(run: Run, name: str) -> str:
    value = getattr(run, name)
    if value in (None, "") or (name == "shots" and is_zero_shot(run.trainer)):
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
