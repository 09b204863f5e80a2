"""The shell scripts: a variable means the same everywhere, and none is ignored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def call(script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    command = ["bash", str(SCRIPTS / script), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "words", "name"),
    [
        ("main.sh", ("digits", "8"), "SHOTS"),
        ("main.sh", ("digits", "8"), "TARGETS"),
        ("base2new.sh", ("digits", "8"), "TARGETS"),
        ("lambda.sh", ("digits", "8"), "SHOTS"),
        ("sweep.sh", ("digits",), "TARGETS"),
        ("sweep.sh", ("grid.yaml",), "SEEDS"),
        ("tables.sh", ("list",), "OUTPUT"),
        ("tables.sh", ("show", "cmp_ablation"), "DEVICE"),
        ("tables.sh", ("run", "cmp_ablation"), "SEEDS"),
        ("figures.sh", ("output",), "OUTPUT"),
    ],
)
def test_a_variable_that_a_script_would_ignore_is_refused(script, words, name):
    end = call(script, *words, **{name: "1"})
    assert end.returncode == 2
    assert end.stderr == f"error: {script} does not use {name}; unset it\n"


@pytest.mark.parametrize("script", ["main.sh", "base2new.sh", "transfer.sh", "lambda.sh"])
def test_the_weights_have_one_name(script):
    end = call(script, "digits", "8", LAMBDA="0.1")
    assert end.returncode == 2
    assert end.stderr.endswith("does not use LAMBDA; unset it or call it LAMBDAS\n")


def test_the_variables_of_a_script_reach_its_runs(tmp_path):
    chosen = {"TRAINERS": "CoOp_CMP KgCoOp_CMP", "SEEDS": "4 5", "LAMBDAS": "0.1 0.2"}
    end = call("main.sh", "digits", "2", "--dry-run", OUTPUT=str(tmp_path), **chosen)
    assert end.returncode == 0, end.stderr
    assert "8 runs, 8 to do" in end.stdout
    assert "digits/KgCoOp_CMP/GlyphCLIP_2shots_lambda0.2/seed5" in end.stdout


@pytest.mark.parametrize("script", ["main.sh", "base2new.sh", "transfer.sh", "lambda.sh"])
def test_a_script_tells_its_options(script):
    end = call(script, "--help")
    assert end.returncode == 0
    assert "--options" in end.stdout
    assert call(script, "digits").returncode == 2
