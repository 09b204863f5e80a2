"""One damaged file of a run stops neither the page nor a table: it is named on the page."""

from __future__ import annotations

import os

import numpy as np
import pytest

from coop_cmp import cli
from tests.made_runs import write_run


@pytest.mark.parametrize("name", ["results.json", "outcomes.npz", "predictions.npz"])
@pytest.mark.parametrize("damage", ["empty", "pipe", "text"])
def test_a_damaged_file_is_named_and_the_others_are_shown(tmp_path, capsys, name, damage):
    for seed in (1, 2):
        write_run(tmp_path / f"seed{seed}", {"SEED": seed}, np.eye(3), np.arange(3), "abc")
    file = tmp_path / "seed1" / name
    file.unlink()
    os.mkfifo(file) if damage == "pipe" else file.write_text("" if damage == "empty" else "{")
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "report.html: 1 runs" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert f"seed1/{name}: " in page
    assert cli.main(["results", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    if name == "predictions.npz":  # a table does not need them
        assert "2 runs" in shown.out
    else:
        assert "1 runs" in shown.out
        assert f"left out: {file}: " in shown.err
