"""Spelling, and phrases that are hard to read, in all that people read."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
import yaml

from tests.conftest import ROOT

FOLDERS = ("coop_cmp", "trainers", "datasets", "scripts", "docs", "benchmarks", "tools", "tests")
FILES = sorted(
    file
    for folder in (ROOT, *(ROOT / name for name in FOLDERS))
    for file in (folder.glob("*") if folder == ROOT else folder.rglob("*"))
    if file.suffix in (".md", ".py", ".sh", ".js") and file.name != "test_words.py"
)


def test_no_file_has_a_phrase_that_is_hard_to_read():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (entry,) = [h["entry"] for h in config["repos"][0]["hooks"] if h["id"] == "phrases"]
    phrases = re.compile(entry, re.IGNORECASE)
    assert phrases.search("No run goes on where it was.")
    assert len(FILES) > 300
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match[0]}"
        for file in FILES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (match := phrases.search(line))
    ]
    assert not found


@pytest.mark.skipif(find_spec("codespell_lib") is None, reason="needs codespell")
def test_the_spelling_is_right():
    # Tests misspell words on purpose.
    files = [str(file) for file in FILES if "tests" not in file.parts]
    command = [sys.executable, "-m", "codespell_lib", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
