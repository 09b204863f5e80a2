"""Numbers that could be changed in the code without a test that noticed; each has one here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import yaml

from coop_cmp.calibrate import fit_dirichlet
from coop_cmp.calibrate.affine import STRENGTHS
from coop_cmp.config import METHODS, flatten
from coop_cmp.errors import UserError
from coop_cmp.predict.selective import choose_threshold
from tests.calibrate.test_posthoc import nll, sample
from tests.conftest import ROOT
from tests.trainers import plain_tpt
from tests.trainers.conftest import build, models  # noqa: F401 - the fixtures
from tests.trainers.test_published import settings
from tests.trainers.test_tpt import unit

RIVALS: dict[str, dict[str, Any]] = {
    "LS": {"LAMBDA": 0.05},
    "FOCAL": {"GAMMA": 3.0},
    "FLSD": {"GAMMA": 3.0, "GAMMA_UNSURE": 5.0, "THRESHOLD": 0.2},
    "ECP": {"LAMBDA": 0.1},
    "MBLS": {"LAMBDA": 0.1, "MARGIN": 10.0},
    "MDCA": {"LAMBDA": 1.0},
    "DCA": {"LAMBDA": 1.0},
    "MMCE": {"LAMBDA": 2.0, "WIDTH": 0.4},
    "ZSPENALTY": {"LAMBDA": 10.0},
    "TCPT": {"LAMBDA": 1.0, "ALPHA": 0.1, "BETA": 0.01, "MOMENTS": 5.0},
    "TPT": {
        "CTX_INIT": "a photo of a",
        "VIEWS": 64,
        "CONFIDENT": 0.1,
        "AUGMIX": [True, False],
        "DISPERSION": [50.0, 20.0],
        "ORTHOGONALITY": [18.0, 2.0],
    },
    "BPEFT": {"KL_WEIGHTS": [0.1] * 5, "BASE_RATE": 1.5},
}
STEP = {"OPTIM.NAME": "adamw", "OPTIM.LR": 0.005, "OPTIM.WEIGHT_DECAY": 0.01}
TUNED = {  # C-TPT and O-TPT mix views of ImageNet's variants, too
    "TPT": STEP,
    "CTPT": {**STEP, "TRAINER.TPT.AUGMIX": [True]},
    "OTPT": {**STEP, "TRAINER.TPT.AUGMIX": [True]},
}


@pytest.mark.parametrize("node", RIVALS)
def test_every_rival_has_its_authors_settings(node):
    declared = vars(settings(node))
    assert {key: declared[key] for key in RIVALS[node]} == RIVALS[node]


@pytest.mark.parametrize("name", TUNED)
def test_tuning_at_test_time_has_its_authors_settings_with_and_without_a_config_file(name):
    assert METHODS[name].defaults == TUNED[name]
    published = {f"TRAINER.TPT.{key}": value for key, value in RIVALS["TPT"].items()} | TUNED[name]
    given = flatten(yaml.safe_load((ROOT / f"configs/trainers/{name}/clip.yaml").read_text()))
    same = {key: value for key, value in given.items() if key in published}
    assert len(same) >= 7
    assert same == {key: published[key] for key in same}


@pytest.mark.parametrize(
    ("name", "key", "plain", "sign"),
    [
        ("CTPT", "DISPERSION", plain_tpt.spread, -1),
        ("OTPT", "ORTHOGONALITY", plain_tpt.reflected, 1),
    ],
)
def test_the_term_is_the_published_one_times_its_weight(build, name, key, plain, sign):  # noqa: F811
    text = unit(7, 12)
    for weight in (0.5, 4.0):
        options = (f"TRAINER.TPT.{key}", [weight], "OPTIM.NAME", "adamw")
        term = build(name, *options).model.term
        torch.testing.assert_close(term(text), sign * weight * plain(text))
    assert build("TPT", "OPTIM.NAME", "adamw").model.term is None


def test_the_strength_of_dirichlet_is_chosen_among_five_powers_of_ten_by_cross_validation():
    """The authors try such powers; a plain version of the choice finds the same one."""
    assert STRENGTHS == (1e-3, 1e-2, 1e-1, 1.0, 10.0)
    chosen = set()
    for n, seed in ((30, 0), (60, 0), (300, 2)):
        logits, labels = sample(n, classes=3, seed=seed)
        folds = np.random.default_rng(0).permutation(n) % 5
        losses = {}
        for strength in (1e-3, 1e-2, 1e-1, 1.0, 10.0):
            total = 0.0
            for fold in range(5):
                kept, out = folds != fold, folds == fold
                fitted = fit_dirichlet(logits[kept], labels[kept], strength)
                total += nll(fitted(logits[out]), labels[out]) * out.sum()
            losses[strength] = total / n
        found = fit_dirichlet(logits, labels).strength
        assert found == min(losses, key=losses.get)
        chosen.add(found)
    assert len(chosen) > 1


@pytest.mark.parametrize("error", [-1e-9, -1, 1.001, float("nan")])
def test_a_wanted_error_is_a_share(error):
    with pytest.raises(UserError, match="from 0 to 1"):
        choose_threshold(np.array([0.9, 0.8]), np.array([True, False]), error)
    assert choose_threshold(np.array([0.9, 0.8]), np.array([True, False]), 0).answered == 1
