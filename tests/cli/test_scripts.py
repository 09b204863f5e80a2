"""The scripts call ``coop-cmp`` with their own arguments, and say how they are used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell import Shell

SCRIPTS = Path(__file__).parents[2] / "scripts"
ON_DATASET = ("main.sh", "base2new.sh", "transfer.sh", "lambda.sh")
OTHERS = sorted(
    file.name
    for file in SCRIPTS.glob("*.sh")
    if file.name not in (*ON_DATASET, "env.sh", "test.sh", "pretrain_glyphclip.sh")
)


def call(script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    command = ["bash", str(SCRIPTS / script), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", ON_DATASET)
def test_a_script_takes_a_data_set_and_a_number_of_shots(script):
    usage = f"usage: bash scripts/{script} <dataset> <shots> [options of coop-cmp "
    for words in ((), ("digits",), ("--shots", "8")):
        end = call(script, *words, PYTHON="/nowhere")  # nothing is set up for that
        assert (end.returncode, end.stderr.startswith(usage)) == (2, True)


def test_the_help_of_a_script_begins_with_its_own_arguments():
    shown = call("main.sh", "--help").stdout
    assert shown.startswith("usage: bash scripts/main.sh <dataset> <shots> [options of coop-cmp ")
    assert "--options KEY=VALUE" in shown


def test_a_script_shows_the_help_of_its_command(tmp_path):
    shell = Shell(tmp_path)
    for script in OTHERS:
        shown = shell(f"bash scripts/{script} --help")
        assert shown.startswith(f"usage: coop-cmp {script.removesuffix('.sh')} ")


def test_the_options_of_a_script_reach_its_runs(tmp_path):
    chosen = "--trainers CoOp_CMP KgCoOp_CMP --seeds 4 5 --lambdas 0.1 0.2"
    shown = Shell(tmp_path)(f"bash scripts/main.sh digits 2 {chosen} --dry-run")
    assert "8 runs, 8 to do" in shown
    assert "digits/KgCoOp_CMP/GlyphCLIP_2shots_lambda0.2/seed5" in shown


def test_the_environment_names_the_data_unless_an_option_does(tmp_path):
    shell, line = Shell(tmp_path), "bash scripts/main.sh eurosat 1 --trainers CoOp --dry-run"
    assert "--root /one " in shell(f"{line} --commands", DATA="/one")
    assert "--root /two " in shell(f"{line} --commands --data /two", DATA="/one")


def test_what_is_installed_is_shown(tmp_path):
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    python = tmp_path / "python"  # one without torch, whose venv is a copy of it
    python.write_text(
        '#!/bin/bash\n[ "$1" = -c ] && exit 1\n'
        'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi\n'
        '[ "$2" = pip ] && echo Collecting torch\nexit 0\n'
    )
    python.chmod(0o755)
    command = ["bash", str(tmp_path / "scripts/main.sh"), "digits", "1"]
    environment = {**os.environ, "PYTHON": str(python)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Setting up" in done.stderr
    assert "Collecting torch" in done.stderr
