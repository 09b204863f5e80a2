"""Runs that differ only in their seed as one line: mean and deviation, and the change by a term."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from coop_cmp.errors import UserError
from coop_cmp.metrics.records import TRAINING, find_metric, shown_in
from coop_cmp.runs.compare import Comparer, Difference, OtherImages
from coop_cmp.runs.frame import settings_text
from coop_cmp.runs.notes import notes
from coop_cmp.runs.pairs import Baselines, change_of

if TYPE_CHECKING:
    import pandas as pd

LEGEND = (
    'Percent, NLL in nats; mean ± standard deviation over seeds. "by ..." is the change against '
    "the method without it, with its 95 % interval over seeds and images; * = the interval "
    "excludes 0."
)


FIT_LEGEND = (
    "In training: accuracy in the last tenth of the epochs; samples that were wrong, on which "
    "alone CMP acts; size of the term's gradient in the logits against the cross-entropy's."
)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and the sample standard deviation; one value has no deviation."""
    return mean(values), stdev(values) if len(values) > 1 else None


def mean_text(values: Sequence[float], metric: str = "accuracy") -> str:
    """Values of a metric over seeds as ``81.23 ± 0.45``; nothing as a dash."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "-"
    number = find_metric(metric).number
    center, deviation = mean_and_deviation(known)
    return number(center) + ("" if deviation is None else f" ± {number(deviation)}")


def change_text(found: Difference | None, metric: str) -> str:
    """A difference as ``-0.72 (-2.11 to +0.67)``, marked where it is significant."""
    if found is None:
        return "-"
    ends = (found.estimate, found.low, found.high)
    estimate, low, high = (find_metric(metric).number(value, signed=True) for value in ends)
    if math.isnan(found.p):
        return f"{estimate} (one seed)"
    mark = " *" if found.holds and float(estimate) else ""  # however sure, 0.00 is nothing
    return f"{estimate} ({low} to {high}){mark}"


def changes(
    ours: Sequence[Mapping[str, Any]],
    baselines: Baselines,
    metrics: Sequence[str],
    comparer: Comparer,
) -> list[str] | None:
    """Return the change in each metric against the baseline; None where there is no baseline.

    Runs that cannot be compared say why.
    """
    pairs = baselines.pairs(ours)
    if not pairs:
        return None
    try:
        return [change_text(comparer.compare(pairs, metric), metric) for metric in metrics]
    except OtherImages:
        return ["not the same images"] * len(metrics)
    except UserError:
        return ["no outcomes"] * len(metrics)


def summary(frame: pd.DataFrame) -> str:
    """A table of all settings in a frame, in the order in which they came."""
    groups = [group for _, group in frame.groupby("group", sort=False)]
    firsts = [group.iloc[0] for group in groups]
    shown = [name for name in _DETAILS if _is_telling(name, firsts)]
    names = [(row["trainer"], *(_detail(row, name) for name in shown)) for row in firsts]
    doubled = len(set(names)) < len(names)  # a column then tells their other settings apart
    comparer, baselines = Comparer(), Baselines(frame.to_dict("records"))
    metrics = [metric.name for metric in shown_in("table")]
    trained = [name for name in TRAINING if name in frame and frame[name].notna().any()]
    lines: list[list[str]] = []
    for group, first, name in zip(groups, firsts, names, strict=True):
        alike = [row for row, other in zip(firsts, names, strict=True) if other == name]
        label = [*name, *[settings_text(first, alike) or "-"] * doubled]
        seeds = ", ".join(map(str, group["seed"])) if first["trainable"] else "-"
        numbers = [mean_text(list(group[metric]), metric) for metric in metrics]
        fit = [_mean_percent(group[name]) for name in trained]
        # Those of a term stand beside its change.
        own, by_term = ([""] * len(fit), fit) if first["term"] else (fit, [""] * len(fit))
        lines.append([*label, seeds, *numbers, *own])
        if found := changes(group.to_dict("records"), baselines, metrics, comparer):
            by = f"by {change_of(first['trainer'], first['calibrator'])}"
            lines.append([by, *[""] * len(label), *found, *by_term])
    header = ["trainer", *(_DETAILS[name] for name in shown), *["settings"] * doubled, "seeds"]
    header += [find_metric(name).heading for name in [*metrics, *trained]]
    table = tabulate(lines, header, tablefmt="github", disable_numparse=True)
    legend = f"{LEGEND} {FIT_LEGEND}" if trained else LEGEND
    return "\n".join([table, legend, *(f"Note: {note}" for note in notes(frame["notes"]))])


_DETAILS = {
    "dataset": "data set",
    "trained_on": "trained on",
    "backbone": "backbone",
    "shots": "shots",
    "lambda": "lambda",
    "form": "form",
    "calibrator": "calibrator",
    "split": "part",
    "classes": "classes",
}


def _mean_percent(values: pd.Series) -> str:
    """The mean of shares that are known, in percent."""
    known = values.dropna()
    return f"{100 * known.mean():.2f}" if len(known) else "-"


def _is_telling(name: str, rows: Sequence[Any]) -> bool:
    """Whether the column would say more than one thing; the penalty's weight always does."""
    said = {_detail(row, name) for row in rows}
    return len(said - ({"-"} if name in ("shots", "form") else set())) > 1


def _detail(row: Any, name: str) -> str:
    value = row[name]
    return "-" if value in (None, "") or value != value else str(value)
