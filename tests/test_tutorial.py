"""The notebook runs from its first cell to its last, in an empty folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.conftest import ROOT

# What the notebook trains, and what takes seconds.
SHORT = {"--validate": "--validate --options OPTIM.MAX_EPOCH=2", "MAX_EPOCH 20": "MAX_EPOCH 2"}


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(ROOT / "docs/tutorial.ipynb", as_version=4)
    sources = "".join(cell.source for cell in notebook.cells)
    assert all(text in sources for text in SHORT)
    for cell in notebook.cells:
        assert not cell.get("outputs"), "clear the outputs before you commit"
        for text, short in SHORT.items():
            cell.source = cell.source.replace(text, short)
    client = NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}, timeout=600)
    client.execute()
    shown = str([output for cell in notebook.cells for output in cell.get("outputs", [])])
    for text in ("by CMP", "image/png", "new.png", "loss_norm", "CoOpNorm"):
        assert text in shown
