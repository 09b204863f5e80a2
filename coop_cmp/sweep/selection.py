"""``python -m coop_cmp.sweep.selection``: the line search for lambda.

Every weight is trained with every seed, tested on the few-shot validation part, and the one with
the lowest mean error there is chosen, the method without the penalty being one of the candidates.
The test set has no say; what it would have chosen is shown to tell how far the choice can be
trusted: a validation part of a few images per class measures calibration only roughly.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import numpy as np
from tabulate import tabulate

from coop_cmp.errors import UserError
from coop_cmp.report.summary import percent
from coop_cmp.results import PREDICTIONS_FILE, read_predictions
from coop_cmp.sweep.__main__ import add_grid_arguments, axes_of
from coop_cmp.sweep.cli import (
    add_launch_arguments,
    add_project_arguments,
    execute,
    guarded,
    project_of,
)
from coop_cmp.sweep.grid import LAMBDAS, Run, number_text, parse_grid
from coop_cmp.sweep.project import Project

METRICS = ("ece", "ace", "mce", "weighted_mce")
NO_VALIDATION = ("ImageNet", "DigitsNoise", "DigitsBlur", "DigitsRotate", "DigitsInvert")
"""How the names of data sets begin that have no validation part besides their test set."""
_ON_TEST_SET = (
    "{}: its validation part is the test set, and lambda must not be chosen there; choose it on "
    "another data set"
)


@dataclass(frozen=True)
class Candidate:
    """One weight of the penalty (None: without it) and its errors by seed."""

    lam: float | None
    validation: tuple[float, ...]
    test: tuple[float, ...]
    accuracy: tuple[float, ...]

    @property
    def label(self) -> str:
        return "no penalty" if self.lam is None else number_text(self.lam)


def choose(candidates: Sequence[Candidate], part: str) -> Candidate:
    """The candidate with the lowest mean error on ``validation`` or ``test``; of equals the
    weakest penalty."""
    return min(candidates, key=lambda c: (mean(getattr(c, part)), c.lam or 0))


def refuse_test_sets(project: Project, datasets: Iterable[str]) -> None:
    """Raise UserError for a data set on which lambda would be chosen by its test set."""
    for name in datasets:
        if project.dataset_names.get(name, "").startswith(NO_VALIDATION):
            raise UserError(_ON_TEST_SET.format(name))


def _same_images(project: Project, tests: Sequence[tuple[Run, Mapping[str, Any]]]) -> bool:
    """Whether two runs were tested on the same images, as far as their labels tell."""
    if len({results["sizes"].get("test") for _, results in tests}) > 1:
        return False
    files = (project.directory(run) / PREDICTIONS_FILE for run, _ in tests)
    one, other = (read_predictions(file).labels for file in files)
    return np.array_equal(one, other)


def collect(project: Project, runs: Sequence[Run], metric: str) -> dict[Run, list[Candidate]]:
    """The candidates of each method, by its run without seed and weight.

    Only weights whose runs are complete for all seeds take part.

    Raises:
        UserError: if the validation part of a data set is its test set.
    """
    groups: dict[Run, dict[Run, list[tuple[Mapping[str, Any], Mapping[str, Any]]]]] = {}
    incomplete: set[Run] = set()
    for run in (run for run in runs if run.training is None):
        method = replace(run, trainer=run.trainer.removesuffix("_CMP"), seed=0, lam=None, form=None)
        setting = replace(run, seed=0)
        test = project.state(run).results
        on_validation = replace(run, split="val")
        validation = project.state(on_validation).results
        if test is None or validation is None:
            incomplete.add(setting)
            continue
        # A folder of one's own may have no validation part, which its images alone tell.
        if _same_images(project, [(run, test), (on_validation, validation)]):
            raise UserError(_ON_TEST_SET.format(run.dataset))
        pair = (validation["metrics"], test["metrics"])
        groups.setdefault(method, {}).setdefault(setting, []).append(pair)
    return {
        method: [
            Candidate(
                setting.lam,
                tuple(validation[metric] for validation, _ in pairs),
                tuple(test[metric] for _, test in pairs),
                tuple(test["accuracy"] for _, test in pairs),
            )
            for setting, pairs in settings.items()
            if setting not in incomplete
        ]
        for method, settings in groups.items()
    }


def describe(method: Run, candidates: Sequence[Candidate], metric: str) -> str:
    """The search of one method as a table with its verdict."""
    chosen, best = choose(candidates, "validation"), choose(candidates, "test")
    name = metric.upper().replace("_", " ")
    header = ["lambda", f"validation {name}", f"test {name}", "test accuracy", ""]
    rows = []
    for candidate in candidates:
        marks = ["chosen"] if candidate is chosen else []
        marks += ["best on test"] if candidate is best else []
        parts = (candidate.validation, candidate.test, candidate.accuracy)
        rows.append([candidate.label, *map(percent, parts), ", ".join(marks)])
    table = tabulate(rows, header, tablefmt="github", disable_numparse=True)
    verdict = f"{method.trainer} on {method.dataset}, {method.shots} shots: {chosen.label}"
    if best is chosen:
        verdict += ", which the test set would have chosen too"
    else:
        loss = 100 * (mean(chosen.test) - mean(best.test))
        verdict += f"; the test set would have chosen {best.label} (test {name} {loss:.2f} lower)"
    return f"{table}\n{verdict}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 1 when a run failed."""
    parser = argparse.ArgumentParser(prog="python -m coop_cmp.sweep.selection", description=__doc__)
    parser.add_argument("--metric", choices=METRICS, default="ece", help="what to minimise")
    add_grid_arguments(parser)
    add_project_arguments(parser)
    add_launch_arguments(parser)
    args = parser.parse_args(arguments)
    axes = {"trainers": ["CoOp"], "lambdas": LAMBDAS, "validate": True, **axes_of(args)}
    baselines = [name.removesuffix("_CMP") for name in axes["trainers"]]
    axes["trainers"] = [name for base in baselines for name in (base, f"{base}_CMP")]
    project = project_of(args)
    grid = parse_grid(axes, "the command line")
    refuse_test_sets(project, grid.datasets)
    runs = grid.runs()
    complete = execute(args, project, runs)
    if not args.dry_run:
        for method, candidates in collect(project, runs, args.metric).items():
            if candidates:
                print(f"\n{describe(method, candidates, args.metric)}")
    return 0 if complete or args.dry_run else 1


if __name__ == "__main__":
    sys.exit(guarded(main))
