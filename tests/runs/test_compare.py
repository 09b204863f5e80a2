"""coop_cmp/runs/compare.py: how sure a difference is."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from coop_cmp.metrics import ece
from coop_cmp.metrics.resample import draws
from coop_cmp.runs.compare import (
    Comparer,
    Difference,
    corrected,
    difference,
    family_p,
    holm,
    interval,
    variances,
)
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.runs.stored import StoredRun
from tests.made_runs import finish_with

IMAGES, REPLICATES = 200, 200


def normal(seed: float, image: float, both: float):
    """Noise of these deviations: of seeds, of images, and of each seed on each image."""

    def draw(random, seeds: int):
        by_image = random.normal(0, both, (seeds, IMAGES)) + random.normal(0, image, IMAGES)
        return by_image + random.normal(0, seed, (seeds, 1))

    return draw


def flips(share: float):
    """Predictions that turn right or wrong, as an accuracy sees them; seeds often agree exactly."""

    def draw(random, seeds: int):
        chances = [share / 2, 1 - share, share / 2]
        return random.choice([-1.0, 0.0, 1.0], p=chances, size=(seeds, IMAGES))

    return draw


CASES = {
    "seeds only": normal(1, 0, 0),
    "images only": normal(0, 10, 0),
    "both": normal(1, 10, 0),
    "interaction only": normal(0, 0, 10),
    "interaction and seeds": normal(1, 0, 14),
    "mixed": normal(0.3, 5, 10),
    "mostly images": normal(0.3, 20, 5),
    "few flips": flips(0.01),
    "more flips": flips(0.05),
}


@cache
def null_differences(noise, seeds: int):
    """Estimates and their variances of 4,000 differences without an effect."""
    random = np.random.default_rng(0)
    counts = random.poisson(1, (REPLICATES, IMAGES)).T.astype(float)
    counts /= counts.sum(0)
    found = []
    for _ in range(4000):
        by_image = CASES[noise](random, seeds)
        by_seed = by_image.mean(1)
        found.append((by_seed.mean(), *variances(by_seed, by_image @ counts)))
    return np.array(found).T


@pytest.mark.parametrize("noise", CASES)
@pytest.mark.parametrize(("seeds", "most"), [(3, 0.080), (10, 0.065)])
def test_without_an_effect_few_differences_are_called_one(seeds, most, noise):
    """The simulation behind the docs."""
    estimate, over_seeds, over_images, _ = null_differences(noise, seeds)
    low, high, p = interval(estimate, over_seeds, over_images, seeds)
    rate = float(((low > 0) | (high < 0)).mean())
    assert (0 if "flips" in noise else 0.035) < rate < most
    assert rate == float((p < 0.05).mean())


@pytest.mark.parametrize("noise", CASES)
@pytest.mark.parametrize("seeds", [3, 10])
def test_without_an_effect_few_families_have_a_significant_member(seeds, noise):
    """Twenty comparisons, all of them without an effect."""
    found = family_p(*null_differences(noise, seeds), seeds).reshape(200, 20)
    marked = [any(p < 0.05 for p in holm(family)) for family in found]
    assert np.mean(marked) <= 0.06


def test_an_interval_is_students_over_seeds_and_normal_over_images():
    # mean 1, deviation d over three seeds: 1 ± 4.3027 d / sqrt(3)
    low, high, _ = interval(1.0, 0.5**2 / 3, 0.0, 3)
    half = stats.t.ppf(0.975, 2) * 0.5 / math.sqrt(3)
    assert (low, high) == pytest.approx((1 - half, 1 + half))
    low, high, p = interval(1.0, 0.0, 0.5**2, 3)
    assert (low, high) == pytest.approx((1 - 1.959964 * 0.5, 1 + 1.959964 * 0.5), abs=1e-6)
    assert p == pytest.approx(2 * stats.norm.sf(2))


@pytest.mark.parametrize(
    ("by_seed", "images", "holds"),
    [
        ([1.0, 1.1, 1.2], 0.01, True),
        ([1.0, 1.1, 1.2], 9.0, False),
        ([1.0, 2.0, -0.5], 0.01, False),
        ([0.3, 0.3, 0.3], 0.0, True),
        ([0.0, 0.0, 0.0], 0.0, False),
        ([1e-17, 1e-17, 1e-17], 0.0, False),
    ],
)
def test_both_kinds_of_chance_count(by_seed, images, holds):
    noise = np.random.default_rng(0).normal(0, images, 500)
    assert difference(by_seed, np.array(by_seed)[:, None] + noise).holds is holds


def test_what_seeds_and_images_share_is_counted_once():
    random = np.random.default_rng(0)
    by_image = random.normal(size=(4, 500))  # nothing but noise of each seed on each image
    drawn = random.multinomial(500, np.full(500, 1 / 500), 4000) / 500
    over_seeds, over_images, both = variances(by_image.mean(1), by_image @ drawn.T)
    assert both == pytest.approx(1 / 500 / 4, rel=0.1)
    assert over_seeds == np.var(by_image.mean(1), ddof=1) / 4
    assert over_images < 0.2 * np.var((by_image @ drawn.T).mean(0), ddof=1)
    # Images that are hard for all seeds alike are counted in full.
    shared = np.tile(by_image[0], (4, 1))
    _, over_images, _ = variances(shared.mean(1), shared @ drawn.T)
    assert over_images == pytest.approx(shared[0].var() / 500, rel=0.1)


def test_a_single_seed_says_nothing_of_others_unless_nothing_depends_on_it():
    spread = np.random.default_rng(0).normal(1, 0.1, (1, 500))
    one = difference([1.0], spread)
    assert (one.estimate, one.holds, one.seeds) == (1.0, False, 1)
    assert math.isnan(one.low)
    fixed = difference([1.0], spread, deterministic=True)
    assert (fixed.holds, fixed.seeds) == (True, 0)
    assert fixed.low == pytest.approx(1 - 1.96 * 0.1, abs=0.02)


def test_families_count_seeds_less_one_as_degrees_of_freedom():
    # mean 1, standard error 0.1 over three seeds, of which images explain a quarter or all
    for both in (0.05**2, 0.1**2, 0.0):
        assert family_p(1.0, 0.1**2, 0.0, both, 3) == pytest.approx(2 * stats.t.sf(10, 2))
    assert family_p(1.0, 0.0, 0.1**2, 0.2**2, 3) == pytest.approx(2 * stats.t.sf(5**0.5 * 2, 2))
    assert family_p(1.0, 0.0, 0.5**2, 0.0, 0) == pytest.approx(2 * stats.norm.sf(2))
    alone = Difference(1.0, p=1e-9, seeds=3, family_p=0.03)
    one, two = corrected([alone, replace(alone, p=math.nan, family_p=math.nan)])
    assert one.p == 0.03
    assert math.isnan(two.p)


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


def test_intervals_end_at_the_bounds_of_a_metric(tmp_path):
    project = Project(tmp_path)
    rows = []
    for seed, right in ((1, 10), (2, 9), (3, 1)):
        run = Run("digits", "CoOp", "GlyphCLIP", 8, seed)
        finish_with(project, run, np.full(10, 0.7), np.arange(10) < right)
        rows += project.frame([run]).to_dict("records")
    found = Comparer().value(rows, "accuracy")
    assert (found.high, found.low) == (1.0, 0.0)
