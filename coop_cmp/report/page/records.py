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
                **{name: str(fact[name]) for name in fact if _is_circumstance(name, fact)},
            }
            for fact in row.group.rows
        ],
    }


def _is_circumstance(name: str, fact: Mapping[str, Any]) -> bool:
    counts = name in CIRCUMSTANCES or name.startswith("versions.")
    return counts and fact[name] is not None


def mixed(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The versions and circumstances that are not the same for all runs that tell them."""
    names = dict.fromkeys(n for fact in facts for n in fact if _is_circumstance(n, fact))
    return [n for n in names if len({fact[n] for fact in facts if fact.get(n) is not None}) > 1]


def mixtures(rows: Sequence[Row]) -> list[list[str]]:
    """For each row what differs among its runs and those of its baseline."""
    baselines = [[] if row.baseline is None else rows[row.baseline].group.rows for row in rows]
    return [mixed([*row.group.rows, *plain]) for row, plain in zip(rows, baselines, strict=True)]


def warnings(rows: Sequence[Row]) -> list[str]:
    """Return warnings about comparing the numbers of different rows."""
    facts = [fact for row in rows for fact in row.group.rows]
    found = [_told(name, facts) for name in mixed(facts)]
    found += mixed_weights(facts)
    for names, alike in _namesakes(rows):
        settings = [row.group.runs[0].settings for row in alike]
        keys = sorted({key for one in settings for key in one})
        telling = [k for k in keys if len({str(one.get(k)) for one in settings}) > 1]
        told = ", ".join(k for k in telling if k != "SEED") or "their training"
        found.append(f"{len(alike)} rows are called {names} and differ in {told}")
    return found


def _told(name: str, facts: Iterable[Mapping[str, Any]]) -> str:
    counts = Counter(str(fact[name]) for fact in facts if fact.get(name) is not None)
    values = ", ".join(
        f"{value} ({number} run{'s'[: number > 1]})" for value, number in counts.most_common(6)
    )
    return f"{name} is not the same for all runs: {values}"


def _namesakes(rows: Sequence[Row]) -> Iterable[tuple[str, list[Row]]]:
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        name = ", ".join((row.group.title, *row.group.setting[:-1]))
        by_name.setdefault(name, []).append(row)
    return ((name, alike) for name, alike in by_name.items() if len(alike) > 1)
