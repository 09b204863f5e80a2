"""coop_cmp/runs/grid.py: from a grid to single runs."""

from __future__ import annotations

import pytest

import coop_cmp.datasets  # noqa: F401 - registers them
from coop_cmp.errors import UserError
from coop_cmp.runs.grid import Grid, parse_grid
from tests.sweep.fake import arguments, main


def test_a_grid_expands_into_every_combination_once_with_stable_directories():
    grid = Grid(
        datasets=("digits",),
        trainers=("ZeroshotCLIP", "CoOp", "CoOp_CMP"),
        shots=(4, 8),
        seeds=(1, 2),
        lambdas=(0.01, 0.5),
        forms=("ratio", "log"),
        targets=("digits_noise",),
    )
    paths = [str(run) for run in grid.runs()]
    # 1 zero-shot; 2 x 2 CoOp; 2 x 2 x 2 x 2 twins; each on two data sets
    assert len(paths) == len(set(paths)) == 2 * (1 + 4 + 16)
    assert "digits/ZeroshotCLIP/GlyphCLIP/seed1" in paths
    assert "digits/CoOp/GlyphCLIP_8shots/seed2" in paths
    assert "digits/CoOp_CMP/GlyphCLIP_8shots_lambda0.5/seed1" in paths
    assert "digits/CoOp_CMP/GlyphCLIP_4shots_lambda0.01_log/seed1" in paths
    assert "digits_noise/CoOp/GlyphCLIP_8shots_from_digits/seed1" in paths
    assert "digits_noise/ZeroshotCLIP/GlyphCLIP/seed1" in paths


def test_a_slash_in_the_backbone_does_not_make_a_directory():
    run = Grid(datasets=("food101",), trainers=("CoOp",), seeds=(3,)).runs()[0]
    assert str(run) == "food101/CoOp/ViT-B-16_8shots/seed3"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"datasets": ["digits"], "trainer": ["CoOp"]}, 'did you mean "trainers"'),
        ({"datasets": ["digits"], "shots": [0]}, "each a whole number >= 1, got"),
        ({"datasets": ["digits"], "shots": [1.5]}, r"got \[1.5"),
        ({"datasets": ["digits"], "seeds": [True]}, r"got \[True"),
        ({"datasets": ["digits"], "lambdas": [-1]}, "lambdas: expected a list, each a number >= 0"),
        ({"datasets": ["digits"], "lambdas": [float("nan")]}, r"got \[nan"),
        ({"datasets": ["digits"], "seeds": []}, "at least one value"),
        ({"datasets": [3]}, "datasets: expected a list, each text"),
        ({"datasets": ["digits"], "options": ["A"]}, "options should be a mapping"),
        ({"trainers": ["CoOp"]}, "names no datasets"),
        ({"datasets": ["digits"], "tag": ".x"}, "tag takes letters"),
        *(
            ({"datasets": ["digits"], "tag": tag}, "reads like a part of other")
            for tag in ("8shots", "from", "new", "log")
        ),
    ],
)
def test_a_mistake_in_a_grid_is_named(entry, message):
    with pytest.raises(UserError, match=message):
        parse_grid(entry, "grid.yaml")


def test_a_number_that_is_none_is_refused(root):
    with pytest.raises(UserError, match=r"shots: expected .* whole number >= 1, got .*'eight'"):
        main(arguments(root, "--shots", "eight"))
