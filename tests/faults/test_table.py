"""Every fault of the table ends with its exit code and its words, in one line and no traceback."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from coop_cmp import cli
from coop_cmp.runs.grid import parse_grid
from tests.faults import file_cases, settings_cases
from tests.faults.case import Case
from tools.glyphclip import pretrain

CASES = [*settings_cases.CASES, *file_cases.CASES]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


def prepare(case: Case, folder: Path) -> None:
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def test_minus_nothing_is_nothing():
    """Two directories would hold the same run."""
    grid = parse_grid({"datasets": "digits", "trainers": "CoOp_CMP", "lambdas": "-0.0"}, "a test")
    assert str(grid.runs()[0]) == "digits/CoOp_CMP/GlyphCLIP_8shots_lambda0/seed1"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_ends_in_one_line(case, tiny_weights, data, tmp_path, monkeypatch, capsys) -> None:
    prepare(case, tmp_path)
    monkeypatch.chdir(tmp_path)
    root = ["--root", str(data)] if case.program == "train" else []
    arguments = [argument.replace("{tmp}", str(tmp_path)) for argument in case.arguments]
    words = [case.program, *root, *arguments]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # the logger replaces it
    try:
        code = cli.main(words) if case.program in cli.COMMANDS else pretrain.main()
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err.strip()
    assert code == case.code, error
    assert "Traceback" not in error
    assert re.search(case.words, error.splitlines()[-1]), error
    assert not list(tmp_path.rglob("results.json"))
