"""coop_cmp/cli/protocols.py: which run tests which, and the tables."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from coop_cmp import cli
from coop_cmp.cli.base2new import halves
from coop_cmp.cli.protocols import published_settings
from coop_cmp.cli.transfer import elsewhere
from coop_cmp.errors import UserError
from coop_cmp.runs.run import Run
from tests.made_runs import finish, finish_with

COOP = Run("digits", "CoOp", "GlyphCLIP", shots=8)
ZERO_SHOT = Run("digits", "ZeroshotCLIP", "GlyphCLIP")


@pytest.fixture
def accuracies(project, capsys):
    """Show a protocol's runs on digits, which are done: the rows of the table of accuracies."""

    def show(command: str, *words: str) -> list[list[str]]:
        given = ["digits", "--shots", "8", "--output", str(project.output), "--trainers", *words]
        assert cli.dispatch([command, *given]) == 0
        lines = capsys.readouterr().out.partition("ECE")[0].splitlines()
        rows = [line for line in lines if line.startswith(("| CoOp", "| by"))]
        return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]

    return show


def test_new_classes_are_tested_with_what_the_base_classes_taught(project):
    tests = halves(COOP)
    assert tests["base"].training is None
    assert tests["new"].training == tests["base"]
    command = project.command(tests["new"])
    assert command[command.index("--model-dir") + 1] == str(project.directory(tests["base"]))
    assert command[command.index("DATASET.SUBSAMPLE_CLASSES") + 1] == "new"
    assert "--eval-only" not in project.command(tests["base"])


def test_zero_shot_needs_no_training_anywhere(project):
    for run in [*halves(ZERO_SHOT).values(), *elsewhere(ZERO_SHOT, ["digits_blur"]).values()]:
        assert run.training is None
        assert "--eval-only" not in project.command(run)


def test_the_last_column_is_the_harmonic_mean_of_the_means(project, accuracies):
    for seed, base, new in ((1, 0.8, 0.5), (2, 0.9, 0.7)):
        run = Run("digits", "CoOp", "GlyphCLIP", shots=8, seed=seed)
        finish(project, halves(run)["base"], accuracy=base)
        finish(project, halves(run)["new"], accuracy=new)
    harmonic = 100 * 2 / (1 / 0.85 + 1 / 0.6)
    expected = ["CoOp", "-", "85.00 ± 7.07", "60.00 ± 14.14", f"{harmonic:.2f}"]
    assert accuracies("base2new", "CoOp", "--seeds", "1", "2") == [expected]


def test_rows_of_the_validation_images_are_named(project, accuracies):
    for part, accuracy in (("test", 0.8), ("val", 0.9)):
        for run in halves(replace(COOP, split=part)).values():
            finish(project, run, accuracy=accuracy)
    rows = accuracies("base2new", "CoOp", "--seeds", "1", "--validate")
    assert [row[:3] for row in rows] == [
        ["CoOp", "-", "80.00"],
        ["CoOp (validation)", "-", "90.00"],
    ]


def test_transfer_tests_the_shifts_and_averages_them(project, accuracies):
    shifts = ["digits_noise", "digits_blur", "digits_rotate", "digits_invert"]
    made = (0.9, 0.1, 0.2, 0.3, 0.4)
    for accuracy, run in zip(made, elsewhere(COOP, shifts).values(), strict=True):
        finish(project, run, accuracy=accuracy)
    expected = ["CoOp", "-", "90.00", "10.00", "20.00", "30.00", "40.00", "25.00"]
    assert accuracies("transfer", "CoOp", "--seeds", "1") == [expected]


def test_published_settings_belong_to_real_models_and_get_their_own_directory(project):
    real = Run("imagenet", "MaPLe_CMP", "ViT-B/16", shots=16, lam=0.01, form="ratio")
    run = published_settings(project, "transfer", real)
    assert dict(run.options)["TRAINER.MAPLE.PROMPT_DEPTH"] == "3"
    assert run.path != real.path
    assert published_settings(project, "transfer", COOP) == COOP
    small = Run("digits", "MaPLe", "GlyphCLIP", shots=8)
    assert published_settings(project, "base2new", small) == small


def test_the_change_by_the_penalty_stands_below_each_twin(project, accuracies):
    rank = np.random.default_rng(0).permutation(500) / 500
    for seed in (1, 2, 3):
        for trainer, rate in (("CoOp", 0.6), ("CoOp_CMP", 0.8)):
            lam, form = (0.01, "ratio") if trainer == "CoOp_CMP" else (None, None)
            run = Run("digits", trainer, "GlyphCLIP", 8, seed, lam, form)
            for half in halves(run).values():
                finish_with(project, half, np.full(500, 0.7), rank < rate, accuracy=rate)
    *_, (by, _, base, _, _) = accuracies("base2new", "CoOp", "CoOp_CMP")
    assert by == "by CMP"
    assert re.fullmatch(r"\+20\.00 \(\+1[5-9]\.\d\d to \+2[0-5]\.\d\d\) \*", base)


def test_a_source_without_known_targets_asks_for_them(project):
    with pytest.raises(UserError, match="--targets"):
        cli.dispatch(["transfer", "dtd"])
