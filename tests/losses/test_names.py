"""Names of terms and trainers, without torch."""

from __future__ import annotations

import inspect

import pytest
from yacs.config import CfgNode

from coop_cmp.losses import function_of
from coop_cmp.losses.names import TERMS, WEIGHT, settings_of, split_trainer, twin_of


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("CoOp_MbLS", ("CoOp", "MbLS")),
        ("CoOp", ("CoOp", None)),
        ("My_Method", ("My_Method", None)),
        ("My_Method_TCPT", ("My_Method", "TCPT")),
        ("CoOp_mbls", ("CoOp_mbls", None)),
        ("_CMP", ("_CMP", None)),
    ],
)
def test_a_trainers_name_has_a_method_and_perhaps_a_term(name, parts):
    assert split_trainer(name) == parts


def test_names_are_joined_as_they_are_split():
    assert twin_of("CoOp") == "CoOp_CMP"
    for term in TERMS:
        assert split_trainer(twin_of("A_B", term)) == ("A_B", term)


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_the_settings_are_the_arguments_of_the_function_with_the_same_defaults(term):
    parameters = inspect.signature(function_of(term.name)).parameters
    settings = {k.lower(): v.default for k, v in term.settings.items() if k != WEIGHT}
    assert list(parameters)[:2] == ["logits", "labels"]
    assert list(parameters)[2 : 2 + len(term.needs)] == list(term.needs)
    assert settings == {key: parameters[key].default for key in settings}
    if term.name != "CMP":  # whose function has options that are no settings
        assert list(parameters)[2 + len(term.needs) :] == list(settings)


def test_settings_are_read_from_the_terms_node():
    cfg = CfgNode({"TRAINER": {"MBLS": {"LAMBDA": 0.3, "MARGIN": 4.0, "FOREIGN": 1}}})
    assert settings_of(cfg, "MbLS") == {"LAMBDA": 0.3, "MARGIN": 4.0}
    assert settings_of(cfg, "CMP") == {}
