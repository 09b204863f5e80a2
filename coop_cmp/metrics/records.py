"""The metrics: what each is, how it is computed and how it is shown, in one record.

Tables, the page, intervals, the evaluator and the commands read :data:`METRICS`; `register` adds
to it. Nothing here needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from coop_cmp.errors import UserError, closest

if TYPE_CHECKING:
    from torch import Tensor

    from coop_cmp.metrics.samples import Samples
    from coop_cmp.metrics.weighted import Weighted

TACE_THRESHOLD = 1e-3


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: Its key in results, frames and commands.
        function: Computes it from weighted samples, a value for each of B weightings [B].
        text: What it is, in one sentence.
        title: The head of its columns; empty for the name.
        unit: ``%`` for a fraction that people read in percent.
        better: Which direction is better; None for neither.
        bounds: The smallest and the largest value.
        all_probabilities: Whether it reads more than the top label of each sample.
        distribution: Whether it is defined only for probabilities that sum to 1.
        on_request: Whether it takes so long that it is computed only if asked for by name.
        shown: Where it is shown unasked: in the ``log`` of a test, in the ``table`` of results and
            on the page.
    """

    name: str
    function: Callable[[Weighted], Tensor]
    text: str
    title: str = ""
    unit: Literal["%", "nats", ""] = "%"
    better: Literal["higher", "lower"] | None = "lower"
    bounds: tuple[float, float] = (0.0, 1.0)
    all_probabilities: bool = False
    distribution: bool = False
    on_request: bool = False
    shown: tuple[Literal["log", "table"], ...] = ("log", "table")

    def values(self, weighted: Weighted) -> Tensor:
        """Compute it for each of B weightings [B]; NaN where it is undefined."""
        if self.undefined(weighted.samples):
            return weighted.size * math.nan
        return self.function(weighted)

    def undefined(self, samples: Samples) -> bool:
        """Whether it is undefined for samples because their probabilities do not sum to 1."""
        return self.distribution and samples.scores == "sigmoid"

    @property
    def heading(self) -> str:
        """The head of its columns."""
        return self.title or self.name

    @property
    def scale(self) -> int:
        """What a value is multiplied with for people: 100 for fractions."""
        return 100 if self.unit == "%" else 1

    @property
    def decimals(self) -> int:
        """Decimals in tables."""
        return 2 if self.unit == "%" else 3

    def number(self, value: float, signed: bool = False) -> str:
        """Format a value for a table whose legend names the unit, such as ``4.05``."""
        return f"{self.scale * value:{'+' if signed else ''}.{self.decimals}f}"

    def show(self, value: float, signed: bool = False) -> str:
        """Format a value on its own, such as ``4.05%`` or ``0.5123``."""
        if math.isnan(value):
            return "undefined"
        sign = "+" if signed else ""
        return f"{100 * value:{sign}.2f}%" if self.unit == "%" else f"{value:{sign}.4f}"


METRICS: dict[str, Metric] = {}


def register(metric: Metric) -> None:
    """Add a metric: to reports, the evaluator, tables, the page, intervals and the command."""
    METRICS[metric.name] = metric


def check_keys(keys: Iterable[str] | None) -> list[str]:
    """Return the names asked for, all but those ``on_request`` for None; refuse unknown ones."""
    if keys is None:
        return [name for name, metric in METRICS.items() if not metric.on_request]
    names = list(keys)
    for name in names:
        if name not in METRICS:
            raise UserError(
                f'metric: there is no "{name}"{closest(name, METRICS)}; choose from '
                f"{', '.join(METRICS)}"
            )
    return names


def find_metric(name: str) -> Metric:
    """Return the metric of this name, or what is measured in training."""
    return METRICS.get(name) or TRAINING[name]


def shown_in(place: Literal["log", "table"]) -> list[Metric]:
    """Return the metrics that are shown unasked in the log or in tables, in their order."""
    return [metric for metric in METRICS.values() if place in metric.shown]


_quiet = partial(Metric, shown=())
_slow = partial(_quiet, all_probabilities=True, on_request=True)
for _metric in (
    Metric(
        "accuracy",
        lambda w: w.mean(w.samples.correct),
        "The share of correct predictions.",
        better="higher",
        shown=("table",),
    ),  # in the log it is Dassl's
    _quiet(
        "confidence",
        lambda w: w.mean(w.samples.confidence),
        "The mean probability of the predicted class.",
        better=None,
    ),
    _quiet(
        "gap",
        lambda w: w.mean(w.samples.confidence - w.samples.correct),
        "Mean confidence minus accuracy: above 0 for an overconfident model.",
        "mean confidence - Acc",
        better=None,
        bounds=(-1.0, 1.0),
    ),
    Metric(
        "ece",
        lambda w: w.width_bins.ece,
        "Expected calibration error: |accuracy - confidence| of equal-width bins, weighted.",
        "ECE",
    ),
    Metric(
        "ace",
        lambda w: w.mass_bins.ece,
        "Adaptive calibration error: the same as ece with as many samples in each bin.",
        "ACE",
    ),
    Metric(
        "mce",
        lambda w: w.width_bins.mce,
        "Maximum calibration error: the largest |accuracy - confidence| of a bin.",
        "MCE",
    ),
    Metric(
        "weighted_mce",
        lambda w: w.width_bins.weighted_mce,
        "The largest |accuracy - confidence| of a bin times its share of samples.",
        "weighted MCE",
        shown=("log",),
    ),
    _quiet(
        "rmsce",
        lambda w: w.width_bins.rmsce,
        "Root of the weighted mean of squared |accuracy - confidence|.",
    ),
    _quiet(
        "average_ce",
        lambda w: w.width_bins.average_ce,
        "Mean of |accuracy - confidence| over the bins that hold samples.",
    ),
    _quiet(
        "debiased_l2",
        lambda w: w.whole_bins.debiased_l2,
        "Squared calibration error in equal-mass bins, without the bias of the plug-in.",
    ),
    _quiet(
        "ks",
        lambda w: w.ks(),
        "The largest distance of cumulated confidence and correctness (Kolmogorov, Smirnov).",
        "KS",
    ),
    _quiet(
        "smooth_ece",
        lambda w: w.smooth_ece(),
        "Calibration error by kernel smoothing instead of bins.",
        "smooth ECE",
    ),
    Metric(
        "nll",
        lambda w: w.mean(w.samples.nll),
        "Mean negative log-likelihood of the labels, in nats.",
        "NLL",
        "nats",
        bounds=(0.0, math.inf),
        distribution=True,
    ),
    _quiet(
        "perplexity",
        # Near the largest float instead of infinity, for a diverged model is stored too.
        lambda w: w.mean(w.samples.nll).clamp_max(709.0).exp(),
        "exp(nll).",
        unit="",
        bounds=(1.0, math.inf),
        distribution=True,
    ),
    _quiet(
        "brier",
        lambda w: w.mean(w.samples.spread[0]),
        "Mean squared distance of the probabilities from the label.",
        "Brier score",
        unit="",
        bounds=(0.0, 2.0),
        distribution=True,
        all_probabilities=True,
    ),
    _quiet(
        "aurc",
        lambda w: w.risk_coverage_area(),
        "Area under the curve of risk against coverage.",
        "AURC",
    ),
    _quiet(
        "auroc",
        lambda w: w.auroc(),
        "How well confidence tells correct from wrong predictions.",
        "AUROC",
        better="higher",
    ),
    _quiet(
        "risk_at_80",
        lambda w: w.risk_at(0.8),
        "The error among the 80 % most confident predictions.",
    ),
    _quiet(
        "sharpness",
        lambda w: w.samples.n_classes * w.mean(w.samples.confidence),
        "The number of classes times the mean confidence.",
        unit="",
        better=None,
        bounds=(0.0, math.inf),
        all_probabilities=True,
    ),
    _quiet(
        "entropy",
        lambda w: w.mean(w.samples.spread[1]),
        "Mean entropy of the probabilities, in nats.",
        distribution=True,
        unit="nats",
        better=None,
        bounds=(0.0, math.inf),
        all_probabilities=True,
    ),
    _slow(
        "classwise_ece",
        lambda w: w.classwise_ece(),
        "Mean over classes of the calibration error of their probabilities.",
        "classwise ECE",
    ),
    _slow(
        "ace_nixon",
        lambda w: w.range_error(),
        "Adaptive calibration error over all classes (Nixon et al.).",
    ),
    _slow(
        "tace",
        lambda w: w.range_error(TACE_THRESHOLD),
        "The same, of probabilities of at least 0.001.",
        "TACE",
    ),
):
    register(_metric)


def _in_training(_: Weighted) -> Tensor:
    raise NotImplementedError("measured in training, not from predictions")


_measured = partial(Metric, function=_in_training, better=None, shown=())
TRAINING = {
    metric.name: metric
    for metric in (
        _measured(
            "fit.accuracy", text="Accuracy in the last tenth of the epochs.", title="training Acc"
        ),
        _measured("fit.wrong", text="Samples that were wrong.", title="wrong in training"),
        _measured("fit.gradient", text="Size of the term's gradient.", title="gradient"),
    )
}
"""What is measured in training, see ``trainers/fit.py``."""
