"""coop_cmp/runs/compare.py: how sure a difference is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from coop_cmp.errors import UserError
from coop_cmp.metrics import ece
from coop_cmp.metrics.resample import draws
from coop_cmp.runs import Comparer, difference, holm
from coop_cmp.runs.compare import interval
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.runs.stored import StoredRun
from tests.made_runs import finish_with


@pytest.mark.parametrize(
    ("seeds", "most"), [(3, 0.080), (5, 0.060), (10, 0.060)], ids=lambda value: str(value)
)
def test_without_an_effect_few_differences_are_called_one(seeds, most):
    """The simulation behind the docs: noise of seeds, each its own, and of images, shared."""
    random, trials = np.random.default_rng(0), 20_000
    rates = []
    for ratio in (0, 0.25, 0.5, 1, 2, 5):  # image noise against the seeds' noise of the mean
        image = ratio / math.sqrt(seeds)
        runs = random.normal(size=(trials, seeds)) + random.normal(0, image, (trials, 1))
        low, high, _ = interval(runs.mean(1), runs.var(1, ddof=1), image**2, seeds)
        rates.append(float(((low > 0) | (high < 0)).mean()))
    assert min(rates) > 0.035
    assert max(rates) < most
    assert rates[0] == pytest.approx(0.05, abs=0.006), "with noise of seeds alone it is exact"


def test_an_interval_is_students_over_seeds_and_normal_over_images():
    # mean 1, deviation d over three seeds: 1 ± 4.3027 d / sqrt(3)
    low, high, _ = interval(1.0, 0.5**2, 0.0, 3)
    half = stats.t.ppf(0.975, 2) * 0.5 / math.sqrt(3)
    assert (low, high) == pytest.approx((1 - half, 1 + half))
    low, high, p = interval(1.0, 0.0, 0.5**2, 3)
    assert (low, high) == pytest.approx((1 - 1.959964 * 0.5, 1 + 1.959964 * 0.5), abs=1e-6)
    assert p == pytest.approx(2 * stats.norm.sf(2))


def test_the_interval_leaves_out_zero_exactly_where_p_is_below_five_percent():
    random = np.random.default_rng(1)
    estimate, seed, image = random.normal(size=500), random.random(500), random.random(500) / 9
    low, high, p = interval(estimate, seed, image, 4)
    assert np.array_equal((low > 0) | (high < 0), p < 0.05)


@pytest.mark.parametrize(
    ("by_seed", "images", "holds"),
    [
        ([1.0, 1.1, 1.2], [0.01], True),
        ([1.0, 1.1, 1.2], [9.0], False),
        ([1.0, 2.0, -0.5], [0.01], False),
        ([0.3, 0.3, 0.3], [0.0], True),
        ([0.0, 0.0, 0.0], [0.0], False),
    ],
)
def test_both_kinds_of_chance_count(by_seed, images, holds):
    spread = np.random.default_rng(0).normal(np.mean(by_seed), images[0], 500)
    assert difference(by_seed, spread).holds is holds


def test_a_single_seed_says_nothing_of_others_unless_nothing_depends_on_it():
    spread = np.random.default_rng(0).normal(1, 0.1, 500)
    one = difference([1.0], spread)
    assert (one.estimate, one.holds, one.seeds) == (1.0, False, 1)
    assert math.isnan(one.low)
    fixed = difference([1.0], spread, deterministic=True)
    assert (fixed.holds, fixed.seeds) == (True, 0)
    assert fixed.low == pytest.approx(1 - 1.96 * 0.1, abs=0.02)


def test_holms_correction_against_a_case_by_hand():
    assert holm([0.01, 0.04, 0.03, math.nan, 0.5])[:3] == pytest.approx([0.04, 0.09, 0.09])
    assert math.isnan(holm([0.01, math.nan])[1])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_shifts_of_the_same_pictures_are_drawn_together(tmp_path):
    """Where both shifts fail on the same pictures, a mean over shifts is no surer than one."""
    project = Project(tmp_path)
    random = np.random.default_rng(0)
    better = random.random(300) < 0.5

    def rows(name_of):
        pairs = []
        for shift in ("digits_noise", "digits_blur"):
            sides = []
            for trainer in ("CoOp_CMP", "CoOp"):
                lam, form = (0.01, "ratio") if trainer == "CoOp_CMP" else (None, None)
                run = Run(shift, trainer, "GlyphCLIP", 8, 1, lam, form)
                correct = better if trainer == "CoOp_CMP" else ~better
                names = [name_of(shift, i) for i in range(300)]
                finish_with(project, run, np.full(300, 0.7), correct, names)
                sides.append(dict(project.frame([run]).iloc[0]) | {"trainable": False})
            pairs.append(tuple(sides))
        return pairs

    def width(pairs):
        found = Comparer().compare(pairs, "accuracy")
        return found.high - found.low

    together = width(rows(lambda shift, i: f"picture {i}"))
    apart = width(rows(lambda shift, i: f"{shift} {i}"))
    assert together == pytest.approx(width(rows(lambda shift, i: f"picture {i}")[:1]), rel=1e-6)
    assert apart == pytest.approx(together / math.sqrt(2), rel=0.1)


def test_runs_on_other_images_are_not_compared(tmp_path):
    project = Project(tmp_path)
    rows = []
    for run, names in (
        (Run("digits", "CoOp", "GlyphCLIP", 8), ["a", "b"]),
        (Run("digits", "KgCoOp", "GlyphCLIP", 8), ["a", "c"]),
    ):
        finish_with(project, run, np.array([0.9, 0.8]), np.array([True, False]), names)
        rows.append(dict(project.frame([run]).iloc[0]))
    with pytest.raises(UserError, match="were not tested on the same images"):
        Comparer().compare([tuple(rows)], "ece")


@pytest.mark.parametrize(("n_bins", "closed"), [(10, "right"), (100, "right"), (15, "left")])
def test_the_interval_of_a_value_is_made_of_the_bins_of_the_run(tmp_path, n_bins, closed):
    random = np.random.default_rng(0)
    confidence = random.uniform(0.55, 0.99, 200)
    options = (("TEST.N_BINS", str(n_bins)), ("TEST.BIN_CLOSED", closed))
    run, project = Run("digits", "CoOp", "GlyphCLIP", 8, options=options), Project(tmp_path)
    finish_with(project, run, confidence, random.random(200) < confidence)
    row = project.frame([run]).to_dict("records")[0]
    stored = StoredRun.of(row["directory"])
    assert stored.bins == (n_bins, closed)
    found = Comparer().value([row | {"trainable": False}], "ece")
    assert found.estimate == row["ece"]
    rows = [np.repeat(np.arange(200), count) for count in draws(stored.outcomes.images)]
    expected = [ece(*(v[r] for v in predictions(stored)), n_bins, closed) for r in rows]
    half = 1.959964 * np.std(expected, ddof=1)
    ends = (found.estimate - half, found.estimate + half)
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-5)


def predictions(run):
    logits = run.predictions.logits.astype(float)
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True), run.predictions.labels
