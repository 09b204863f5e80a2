"""Settings, versions and circumstances of runs, and where they differ but should not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coop_cmp.metrics.records import shown_in
from coop_cmp.report.collect import mixed_weights
from coop_cmp.report.page.rows import Row

CIRCUMSTANCES = ("commit", "machine.device_name", "machine.precision")


def records(row: Row) -> dict[str, Any]:
    """The settings of a row and what is particular to each of its runs; ready for JSON."""
    shared = sorted(row.group.runs[0].settings.items())
    return {
        "settings": {key: str(value) for key, value in shared if key != "SEED"},
        "runs": [
            {
                "directory": fact["directory"],
                "seed": fact["seed"],
                **{metric.name: fact[metric.name] for metric in shown_in("table")},
                "seconds": fact["seconds.total"],
                "notes": fact["notes"],
                **_circumstances(fact),
            }
            for fact in row.group.rows
        ],
    }


def _circumstances(fact: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(value)
        for name, value in fact.items()
        if (name in CIRCUMSTANCES or name.startswith("versions.")) and value is not None
    }


def _mixed(facts: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """The circumstances that are not the same for all runs that tell them, and what they are."""
    found: dict[str, Counter[str]] = {}
    for fact in facts:
        for name, value in _circumstances(fact).items():
            found.setdefault(name, Counter())[value] += 1
    return {name: counts for name, counts in found.items() if len(counts) > 1}


def mixtures(rows: Sequence[Row]) -> list[list[str]]:
    """For each row what differs among its runs and those of its baseline."""
    baselines = [[] if row.baseline is None else rows[row.baseline].group.rows for row in rows]
    return [list(_mixed([*row.group.rows, *b])) for row, b in zip(rows, baselines, strict=True)]


def warnings(rows: Sequence[Row]) -> list[str]:
    """Return warnings about comparing the numbers of different rows."""
    facts = [fact for row in rows for fact in row.group.rows]
    found = []
    for name, counts in _mixed(facts).items():
        times = [f"{value} ({n} run{'s'[: n > 1]})" for value, n in counts.most_common(6)]
        found.append(f"{name} is not the same for all runs: {', '.join(times)}")
    found += mixed_weights(facts)
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        name = ", ".join((row.group.title, *row.group.setting[:-1]))
        by_name.setdefault(name, []).append(row.group.runs[0].settings)
    for name, settings in by_name.items():
        keys = sorted({key for one in settings for key in one} - {"SEED"})
        telling = [k for k in keys if len({str(one.get(k)) for one in settings}) > 1]
        if len(settings) > 1:
            told = ", ".join(telling) or "their training"
            found.append(f"{len(settings)} rows are called {name} and differ in {told}")
    return found
