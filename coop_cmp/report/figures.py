"""The figures of stored runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from coop_cmp.errors import UserError
from coop_cmp.files import atomic_write
from coop_cmp.metrics import METRICS
from coop_cmp.metrics.panel import measure
from coop_cmp.metrics.weighted import width_bins
from coop_cmp.report import COLUMN, plots
from coop_cmp.report.groups import FREE_OVER, Group, file_stem, grouped, paired, styles
from coop_cmp.runs.run import DEFAULT_LAMBDA
from coop_cmp.runs.stored import StoredRun

PAGE = 2 * COLUMN
MOST_CLASSES = 12
LOOK = {
    "font.size": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "coop-cmp",
    "pdf.fonttype": 42,  # TrueType: some venues reject Type 3
    "text.parse_math": False,  # a data set may be called $x$
}


def _panels(runs: list[Group], height: float, rows: int = 1, **more: Any) -> tuple[Figure, Any]:
    """One column per run, with the names of the shared y axes on the left [rows, runs]."""
    figure = Figure((COLUMN * len(runs), height), layout="constrained")
    axes = figure.subplots(rows, len(runs), sharey="row", squeeze=False, **more)
    for axis in axes[:, 1:].flat:
        axis.yaxis.label.set_visible(False)
    return figure, axes


def reliability_figure(runs: list[Group]) -> Figure:
    """Reliability diagrams over histograms of the confidence, one column per run."""
    figure, axes = _panels(runs, 4.4, 2, sharex=True, height_ratios=[3, 1])
    for (upper, lower), run in zip(axes.T, runs, strict=True):
        bins = width_bins(run.samples, *run.bins)
        plots.draw_reliability(upper, bins)
        plots.draw_counts(lower, bins)
        numbers = [f"{name} {_shown(run, key)}" for name, key in (("ECE", "ece"), ("MCE", "mce"))]
        means = [f"{key} {_shown(run, key)}" for key in ("accuracy", "confidence")]
        upper.set_title(f"{run.title}\n{'   '.join(numbers)}\n{'   '.join(means)}")
    return _finished(figure, runs[0].heading, _small_print(runs))


def confidence_figure(runs: list[Group]) -> Figure:
    """Confidences of correct against incorrect predictions, one column per run."""
    figure, axes = _panels(runs, 2.9)
    for axis, run in zip(axes[0], runs, strict=True):
        plots.draw_confidence(axis, run.samples, *run.bins, run.title)
    return _finished(figure, runs[0].heading, _small_print(runs), legend=False)


def risk_coverage_figure(runs: list[Group]) -> Figure:
    """Error rate against coverage, all runs in one picture."""
    figure = Figure((COLUMN * 1.2, 3.2), layout="constrained")
    plots.draw_risk_coverage(figure.subplots(), {run.title: run.samples for run in runs})
    return _finished(figure, runs[0].heading, _sizes(runs))


def class_figure(runs: list[Group]) -> Figure:
    """ECE of each class, all runs in one picture."""
    names = runs[0].predictions.classnames
    rows = min(30, len(names))
    figure = Figure((COLUMN * 1.2, 1.6 + 0.2 * rows), layout="constrained")
    plots.draw_class_ece(
        figure.subplots(), {run.title: run.samples for run in runs}, names, *runs[0].bins, rows
    )
    return _finished(figure, runs[0].heading, _small_print(runs))


def figure_one(without: Group, with_penalty: Group, class_index: int = 0) -> Figure:
    """Figure 1 of the paper: one class's mean probabilities above, all confidences below."""
    runs = [without, with_penalty]
    names = without.predictions.classnames
    if with_penalty.predictions.classnames != names:
        raise UserError(f"{with_penalty.path}: its classes are not those of {without.path}")
    figure, axes = _panels(runs, 5, 2)
    figure.set_layout_engine(ConstrainedLayoutEngine(hspace=0.1))
    shown = _largest_classes(runs, class_index)
    for (upper, lower), run in zip(axes.T, runs, strict=True):
        plots.draw_class_probabilities(upper, run.samples, names, class_index, shown)
        count = int((run.samples.labels == class_index).sum())
        upper.set_title(f"{run.title}\n{_images(run, count)} of class “{names[class_index]}”")
        title = f"all {_images(run, len(run.samples))}"
        plots.draw_confidence(lower, run.samples, *run.bins, title)
    return _finished(figure, runs[0].heading, _small_print(runs), legend=False)


def curve_figure(
    runs: list[Group], over: str, heading: str, looks: Mapping[str, tuple[int, int]]
) -> Figure | None:
    """Accuracy and ECE over ``"lambda"`` or ``"shots"``, or None with fewer than two values.

    Args:
        looks: The styles of all runs that are drawn anywhere.
    """
    levels = sorted(level for level in {run.level(over) for run in runs} if level is not None)
    if len(levels) < 2:
        return None
    curves: dict[str, list[Group]] = {}
    for name, run in zip(_curve_names(runs, over), runs, strict=True):
        curves.setdefault(name, []).append(run)
    figure = Figure((PAGE, 3.2), layout="constrained")
    for axis, key in zip(figure.subplots(1, 2), ("accuracy", "ece"), strict=True):
        alike: Counter[tuple[int, int]] = Counter()
        for name, members in curves.items():
            points: dict[float | None, list[float]] = {}
            for run in members:
                points.setdefault(run.level(over), []).append(100 * run.row[key])
            look = looks[members[0].title]
            plots.draw_curve(axis, name, points, levels, look, alike[look])
            alike[look] += 1
        name = "ECE" if key == "ece" else key
        axis.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
        axis.set(xlabel="λ" if over == "lambda" else over, ylabel=f"{name} (%)", title=name)
        axis.set_xlim(-0.5, len(levels) - 0.5)
    seeded = [(n, run.level(over)) for n, runs in curves.items() for run in runs if run.seeds]
    counts = sorted(Counter(seeded).values())
    number = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    seeds = f"{number} seed{'s'[: counts[-1] > 1]} per point"
    return _finished(figure, heading, f"mean and standard deviation over {seeds}")


def _curve_names(runs: list[Group], over: str) -> list[str]:
    """The curve to which each run belongs: other options make another curve of their own."""
    curves = [(run.variant, set(run.same_but(*FREE_OVER[over]))) for run in runs]
    names = []
    for variant, curve in curves:
        others = [other for name, other in curves if name == variant]
        telling = sorted({word for other in others for word in curve - other})
        names.append(variant + (f" ({', '.join(telling)})" if telling else ""))
    return names


def draw_all(
    stored: list[StoredRun],
    save: Callable[[Figure, str], None],
    class_name: str | None = None,
    every: bool = False,
) -> None:
    """Draw every figure that the runs allow and hand it to ``save`` with a name for its file.

    Args:
        class_name: The class of Figure 1, which groups without it do without; the one most
            confused in each group if None.
        every: Pictures of every seed instead of all seeds pooled.
    """
    groups = paired(grouped(stored, pool=not every))
    runs = grouped(stored, pool=False)
    pairs = [group for group in groups if len(group) == 2]
    if class_name is not None and pairs and not any(_class_shown(p, class_name) for p in pairs):
        pairs[0][0].class_index(class_name)  # tells what there is
    taken: Counter[str] = Counter()
    for group in groups:
        stem = file_stem(*group[0].setting, group[0].method if len(group) > 1 else group[0].title)
        taken[stem] += 1
        stem += f"_{taken[stem]}" if taken[stem] > 1 else ""  # other options, the same name
        save(reliability_figure(group), f"{stem}_reliability")
        save(confidence_figure(group), f"{stem}_confidence")
        save(risk_coverage_figure(group), f"{stem}_risk_coverage")
        save(class_figure(group), f"{stem}_classes")
        for index in _class_shown(group, class_name) if len(group) == 2 else ():
            save(figure_one(group[0], group[1], index), f"{stem}_figure1")
    looks = styles(runs)
    for over, shared in (("lambda", -1), ("shots", -2)):
        families: dict[Any, list[Group]] = {}
        for run in sorted(runs, key=lambda run: (run.variant, run.lam or 0)):
            if run.row and (over == "lambda" or run.lam in (None, DEFAULT_LAMBDA)):
                families.setdefault(run.setting[:shared], []).append(run)
        for setting, family in families.items():
            if (figure := curve_figure(family, over, ", ".join(setting), looks)) is not None:
                save(figure, file_stem(*setting, over))


def _class_shown(pair: list[Group], class_name: str | None) -> list[int]:
    """The class named, if there are images of it; without a name the one most confused."""
    if class_name is None:
        errors = [
            torch.bincount(s.labels, 1 - s.correct, minlength=s.n_classes)  # [C]
            for s in (run.samples for run in pair)
        ]
        return [int(torch.stack(errors).sum(0).argmax())]
    try:
        index = pair[0].class_index(class_name)
    except UserError:
        return []
    return [index] if bool((pair[0].samples.labels == index).any()) else []


def _largest_classes(runs: list[Group], index: int) -> list[int]:
    """The class itself and those that its images are taken for most, in the order of classes."""
    # A seed may be missing in one of them, whose images are then fewer.
    images = [run.samples.take((run.samples.labels == index).nonzero()[:, 0]) for run in runs]
    if not all(map(len, images)):
        raise UserError(f"--class: the test set has no image of class {index}")
    n_classes = runs[0].samples.n_classes
    means = [
        max(float(samples.class_column(k).mean()) for samples in images) for k in range(n_classes)
    ]
    others = sorted(set(range(n_classes)) - {index}, key=lambda k: -means[k])
    return sorted([index, *others[: MOST_CLASSES - 1]])


def _shown(run: Group, key: str) -> str:
    return METRICS[key].show(measure(run.samples, [key], *run.bins)[key])


def _images(run: Group, pooled: int) -> str:
    """How many images there are, and how often each counts."""
    seeds = len(run.runs)
    return f"{pooled // seeds:,} images" + (f" × {seeds} seeds" if seeds > 1 else "")


def _sizes(runs: list[Group]) -> str:
    pooled = ", pooled" if len(runs[0].runs) > 1 else ""
    images = _images(runs[0], len(runs[0].samples))
    return f"{images}{pooled}, {runs[0].samples.n_classes:,} classes"


def _small_print(runs: list[Group]) -> str:
    n_bins, closed = runs[0].bins
    return f"{_sizes(runs)}; {n_bins} bins {'(lo, hi]' if closed == 'right' else '[lo, hi)'}"


def _finished(figure: Figure, heading: str, note: str, legend: bool = True) -> Figure:
    """Add the heading, the small print under it and the legend of all axes."""
    figure.suptitle(f"{heading}\n{note}".strip())
    if legend:
        handles: dict[str, Any] = {}
        for axes in figure.axes:
            handles.update(dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)))
        columns = 2 if figure.get_figwidth() < PAGE else 3
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the path's ending; the same run gives the same file."""
    suffix = path.suffix.removeprefix(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
    with atomic_write(path) as file:
        figure.savefig(file, format=suffix, dpi=200, metadata=metadata)
    print(path)
