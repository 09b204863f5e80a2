"""Calibration drawn: each function puts one picture on the axes it is given.

Colours differ in lightness and every fill that matters has its own hatch, so that nothing is lost
in grey print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from coop_cmp.metrics import METRICS, ReliabilityBins, Samples
from coop_cmp.metrics.bins import Closed
from coop_cmp.metrics.classwise import class_residuals, per_class_ece
from coop_cmp.metrics.ranked import risk_coverage_curve
from coop_cmp.metrics.weighted import width_bins
from coop_cmp.report.groups import COLOURS

ACCURACY = "#9ecae1"
OVER: dict[str, Any] = {"facecolor": "#fdae6b", "edgecolor": "#a63603", "hatch": "////"}
UNDER: dict[str, Any] = {"facecolor": "#31688e", "edgecolor": "#e8f1fa", "hatch": "...."}
CORRECT: dict[str, Any] = {"facecolor": "#3182bd", "edgecolor": "#08306b"}
WRONG: dict[str, Any] = {"facecolor": "#fec44f", "edgecolor": "#7f3b08", "hatch": "////"}
DASHES = ["-", "--", "-.", ":"]
MARKERS = "oDs^P*Xp"  # those of the page, as are their fills (charts.js)
FILLS = ["full", "none", "left", "top"]


def draw_reliability(axes: Axes, bins: ReliabilityBins) -> None:
    """Accuracy per bin, and the gap to the bin's mean confidence coloured by its sign.

    Empty bins stay empty. The gap of an over-confident bin stands on the accuracy bar; that of an
    under-confident one covers its upper end.
    """
    left, width = bins.edges[:-1], bins.edges.diff()
    accuracy, confidence, gap = bins.accuracy, bins.confidence, bins.gap

    def bars(label: str, chosen: Tensor, low: Tensor, high: Tensor, **look: Any) -> None:
        if chosen.any():
            place, height = left[chosen].tolist(), (high - low)[chosen].tolist()
            look |= {"bottom": low[chosen].tolist(), "align": "edge", "linewidth": 0.5}
            axes.bar(place, height, width[chosen].tolist(), label=label, **look)

    look = {"facecolor": ACCURACY, "edgecolor": "#2171b5"}
    bars("accuracy", bins.count > 0, torch.zeros_like(left), accuracy, **look)
    bars("gap: over-confident", gap > 1e-9, accuracy, confidence, **OVER)
    bars("gap: under-confident", gap < -1e-9, confidence, accuracy, **UNDER)
    axes.plot([0, 1], [0, 1], color="black", linestyle="--", linewidth=0.8, label="perfect")
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")


def draw_counts(axes: Axes, bins: ReliabilityBins) -> None:
    """Share of the samples per bin, with the mean confidence and the accuracy as lines."""
    edges, total = bins.edges, bins.count.sum()
    axes.bar(
        edges[:-1].tolist(),
        (100 * bins.share).tolist(),
        edges.diff().tolist(),
        align="edge",
        facecolor="#bdbdbd",
        edgecolor="#525252",
        linewidth=0.5,
    )
    accuracy = float(bins.correct_sum.sum() / total)
    confidence = float(bins.confidence_sum.sum() / total)
    axes.axvline(accuracy, color="#08519c", linewidth=1.2, label="accuracy of all")
    axes.axvline(confidence, color="#a63603", linewidth=1.2, linestyle=":", label="mean confidence")
    axes.set(xlim=(0, 1), xlabel="confidence", ylabel="% of samples")
    axes.yaxis.set_major_locator(MaxNLocator(4))


def draw_confidence(
    axes: Axes, samples: Samples, n_bins: int = 10, closed: Closed = "right", title: str = ""
) -> None:
    """Confidences of correct and of incorrect predictions, side by side in the same bins."""
    bins = width_bins(samples, n_bins, closed)
    width = 0.45 / n_bins
    left = bins.edges[:-1] + 0.05 / n_bins
    sides = (
        ("correct", bins.correct_sum, CORRECT),
        ("incorrect", bins.count - bins.correct_sum, WRONG),
    )
    for place, (name, count, look) in enumerate(sides):
        right = samples.correct == 1 - place
        mean = f"{100 * float(samples.confidence[right].mean()):.1f}%" if right.any() else "none"
        axes.bar(
            (left + place * width).tolist(),
            (100 * count / len(samples)).tolist(),
            width,
            align="edge",
            linewidth=0.5,
            label=f"{name} (mean {mean})",
            **look,
        )
    axes.set(xlim=(0, 1), xlabel="confidence", ylabel="% of samples")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    # Between title and picture, where no bar can be under it.
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 0.98), ncols=2, borderaxespad=0.2)
    axes.set_title(title, pad=16)


def draw_risk_coverage(axes: Axes, named: dict[str, Samples]) -> None:
    """Error rate of the most confident samples, with the best possible order as a thin line."""
    for i, (name, samples) in enumerate(named.items()):
        coverage, risk = risk_coverage_curve(samples)
        ideal = (coverage - samples.correct.mean()).clamp_min(0) / coverage
        label = f"{name}, AURC {METRICS['aurc'].show(risk.mean().item())}"
        look: dict[str, Any] = {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": DASHES[i % len(DASHES)],
        }
        axes.plot(100 * coverage, 100 * risk, label=label, **look)
        axes.plot(100 * coverage, 100 * ideal, linewidth=0.6, **look)
    axes.plot([], [], color="black", linewidth=0.6, label="thin: ideal order")
    axes.set(xlim=(0, 100), xlabel="coverage (%)", ylabel="error rate (%)")
    # Never so close that rounding errors look like errors.
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))


def draw_class_ece(
    axes: Axes,
    named: dict[str, Samples],
    classnames: Sequence[str],
    n_bins: int = 10,
    closed: Closed = "right",
    most: int = 30,
) -> None:
    """One-versus-rest ECE per class, the largest first, at most ``most`` of them."""
    errors = [
        100 * per_class_ece(class_residuals(samples, n_bins, closed), len(samples))
        for samples in named.values()
    ]
    worst = torch.stack(errors).amax(0).argsort(descending=True, stable=True)[:most]
    height = 0.8 / len(named)
    for i, (name, error) in enumerate(zip(named, errors, strict=True)):
        place = torch.arange(len(worst)) + (i - (len(named) - 1) / 2) * height
        look = (CORRECT, WRONG)[i % 2]
        label = f"{name}, mean {float(error.mean()):.2f}%"
        axes.barh(place.tolist(), error[worst].tolist(), height, linewidth=0.5, label=label, **look)
    axes.set_yticks(range(len(worst)), [shortened(classnames[k]) for k in worst.tolist()])
    axes.set_ylim(len(worst) - 0.5, -0.5)
    axes.set_xlim(0, max(0.1, axes.get_xlim()[1]))
    axes.set_xlabel("classwise ECE (%)")
    if len(worst) < len(classnames):
        axes.set_ylabel(f"the {len(worst)} largest of {len(classnames)} classes")


def draw_class_probabilities(
    axes: Axes, samples: Samples, classnames: Sequence[str], index: int, shown: Sequence[int]
) -> None:
    """Mean probability of the shown classes over the images of class ``index``."""
    rows = (samples.labels == index).nonzero()[:, 0]
    chosen = samples.take(rows)
    means = [100 * float(chosen.class_column(k).mean()) for k in shown]
    bars = axes.bar(range(len(shown)), means, 0.8, linewidth=0.5, **WRONG)
    for bar, k in zip(bars, shown, strict=True):
        if k == index:
            bar.set(**CORRECT, hatch="")
    names = [shortened(classnames[k]) for k in shown]
    upright = max(map(len, names)) > 2
    axes.set_xticks(range(len(shown)), names, rotation=90 if upright else 0)
    axes.set(ylim=(0, 100), xlabel="class", ylabel="mean probability (%)")


def draw_curve(
    axes: Axes,
    name: str,
    points: Mapping[float | None, Sequence[float]],
    levels: Sequence[float],
    style: tuple[int, int],
    place: int,
) -> None:
    """Mean over seeds with the standard deviation as error bars, at evenly spaced levels.

    Args:
        points: The values of all seeds by level, such as lambda or shots; under None those of a
            method without levels, drawn as a horizontal line.
        style: The numbers of its colour and of its symbol.
        place: Its place among the curves of this style, shown by its dashes.
    """
    colour, symbol = style
    look: dict[str, Any] = {
        "color": COLOURS[colour % len(COLOURS)],
        "linestyle": DASHES[(symbol + place) % len(DASHES)],
        "linewidth": 1.2,
        "marker": MARKERS[symbol % len(MARKERS)],
        "markersize": 4,
        "fillstyle": FILLS[symbol // len(MARKERS) % len(FILLS)],
        "label": name,
    }
    if None in points:
        axes.axhline(mean(points[None]), **look)
        return
    drawn = [k for k, level in enumerate(levels) if level in points]
    values = [points[levels[k]] for k in drawn]
    # The sample deviation, as in the tables; one seed has none.
    deviations = [stdev(value) if len(value) > 1 else 0.0 for value in values]
    axes.errorbar(drawn, list(map(mean, values)), deviations, capsize=2, **look)


def shortened(name: str, length: int = 18) -> str:
    """A class name that fits on an axis."""
    return name if len(name) <= length else name[: length - 1] + "…"
