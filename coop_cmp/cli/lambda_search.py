"""Choose lambda by a line search on validation images.

  coop-cmp lambda digits --shots 8
  coop-cmp lambda glyphs --shots 1 --trainers CoOp KgCoOp --lambdas 0.01 0.1 --forms ratio log

Each weight is trained with each seed and tested on the few-shot validation part. The weight with
the lowest mean error is chosen; the method without the penalty is one of the candidates. The test
set is not used. Its choice is shown for comparison, because a few validation images per class
measure calibration only roughly.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from tabulate import tabulate

from coop_cmp.cli.execute import execute
from coop_cmp.cli.options import add_grid_arguments, grid_of, project_of
from coop_cmp.errors import UserError
from coop_cmp.losses.names import split_trainer, twin_of
from coop_cmp.metrics.records import METRICS, shown_in
from coop_cmp.report.summary import change_text, mean_text
from coop_cmp.runs.compare import Comparer
from coop_cmp.runs.pairs import Baselines, Row, baseline_of
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import DEFAULT_FORM, LAMBDAS, Run, number_text, shots_text

_ON_TEST_SET = (
    "{}: its validation part is the test set, and lambda must not be chosen there; choose it on "
    "another data set"
)


@dataclass(frozen=True)
class Candidate:
    """One weight of the penalty (None: without it) with its runs, by seed.

    Attributes:
        validation: Rows of the tests on the validation part.
        test: Rows of the tests on the test set.
    """

    lam: float | None
    form: str | None
    validation: Sequence[Row]
    test: Sequence[Row]

    @property
    def label(self) -> str:
        if self.lam is None:
            return "no penalty"
        form = "" if self.form in (None, DEFAULT_FORM) else f" {self.form}"
        return f"{number_text(self.lam)}{form}"

    def values(self, part: str, metric: str) -> list[float]:
        """The metric of each seed on ``validation`` or ``test``."""
        return [row[metric] for row in getattr(self, part)]


def choose(candidates: Sequence[Candidate], part: str, metric: str) -> Candidate:
    """The candidate with the lowest mean error on ``validation`` or ``test``; of equals the
    weakest penalty."""
    return min(candidates, key=lambda c: (mean(c.values(part, metric)), c.lam or 0))


def refuse_test_sets(project: Project, datasets: Iterable[str]) -> None:
    """Raise UserError for a data set on which lambda would be chosen by its test set."""
    from dassl.data.datasets import DATASET_REGISTRY  # loads torch, too slow for --help

    import coop_cmp.datasets  # noqa: F401 - registers them

    known = set(DATASET_REGISTRY.registered_names())
    for name in datasets:
        registered = project.dataset_names.get(name)
        kind: Any = DATASET_REGISTRY.get(registered) if registered in known else None
        sizes = getattr(kind, "sizes", None)
        if sizes and not (sizes.val and kind.sample_val):
            raise UserError(_ON_TEST_SET.format(name))


def collect(project: Project, runs: Sequence[Run]) -> dict[Run, list[Candidate]]:
    """The candidates of each method, by its run without seed and weight.

    Only weights whose runs are complete for all seeds take part.

    Raises:
        UserError: if the validation part of a data set is its test set.
    """
    tests = {run: replace(run, split="val") for run in runs if run.training is None}
    rows = project.rows([*tests, *tests.values()])
    found: dict[Run, list[Candidate]] = {}
    for setting in dict.fromkeys(replace(run, seed=0) for run in tests):
        members = [(run, val) for run, val in tests.items() if replace(run, seed=0) == setting]
        candidates = found.setdefault(baseline_of(setting) or setting, [])
        if any(run not in rows for pair in members for run in pair):
            continue
        test, validation = ([rows[run] for run in part] for part in zip(*members, strict=True))
        # A folder of one's own may have no validation part, which its images alone tell.
        if {row["images"] for row in test} & {row["images"] for row in validation}:
            raise UserError(_ON_TEST_SET.format(setting.dataset))
        candidates.append(Candidate(setting.lam, setting.form, validation, test))
    return found


def describe(method: Run, candidates: Sequence[Candidate], metric: str) -> str:
    """The search of one method as a table with its verdict."""
    chosen, best = (choose(candidates, part, metric) for part in ("validation", "test"))
    name = METRICS[metric].heading
    header = ["lambda", f"validation {name}", f"test {name}", "test accuracy", ""]
    rows = []
    for candidate in candidates:
        marks = ["chosen"] if candidate is chosen else []
        marks += ["best on test"] if candidate is best else []
        parts = (("validation", metric), ("test", metric), ("test", "accuracy"))
        numbers = [mean_text(candidate.values(part, key), key) for part, key in parts]
        rows.append([candidate.label, *numbers, ", ".join(marks)])
    table = tabulate(rows, header, tablefmt="github", disable_numparse=True)
    verdict = f"{method.trainer} on {method.dataset}, {shots_text(method.shots)}: {chosen.label}"
    if best is chosen:
        verdict += ", which the test set would have chosen too"
    else:
        loss = mean(chosen.values("test", metric)) - mean(best.values("test", metric))
        lower = METRICS[metric].number(loss)
        verdict += f"; the test set would have chosen {best.label} (test {name} {lower} lower)"
    return f"{table}\n{verdict}.{_differences(chosen, candidates, metric)}"


def _differences(chosen: Candidate, candidates: Sequence[Candidate], metric: str) -> str:
    """How the choice differs from no penalty, on the images it was made on and on the test set."""
    plain = next((candidate for candidate in candidates if candidate.lam is None), chosen)
    if plain is chosen:
        return ""
    found = []
    for part in ("validation", "test"):
        before, after = (getattr(candidate, part) for candidate in (plain, chosen))
        difference = Comparer().compare(Baselines(before).pairs(after), metric)
        found.append(f"{part} {change_text(difference, metric)}")
    return (
        f"\nAgainst no penalty, in {METRICS[metric].heading}: {', '.join(found)}; "
        "* = the 95 % interval excludes 0."
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_grid_arguments(parser, "data sets: names, or folders of your own images")
    errors = [metric.name for metric in shown_in("log") if metric.better == "lower"]
    parser.add_argument(
        "--metric", choices=errors, default="ece", help="metric to minimise (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a run failed."""
    baselines = [split_trainer(name)[0] for name in args.trainers or ["CoOp"]]
    args.trainers = [name for base in baselines for name in (base, twin_of(base))]
    project = project_of(args)
    grid = grid_of(args, lambdas=LAMBDAS, validate=True)
    refuse_test_sets(project, grid.datasets)
    runs = grid.runs()
    complete = execute(args, project, runs)
    if complete is not None:
        for method, candidates in collect(project, runs).items():
            if candidates:
                print(f"\n{describe(method, candidates, args.metric)}")
    return 1 if complete is False else 0
