"""Every code block of README and docs: parsed, its options and imports checked.

Which of them are run is said in tests/test_docs_run.py.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import yaml

from coop_cmp import cli, cmp_loss
from coop_cmp.config import SETTINGS, read
from coop_cmp.config.resolve import pairs
from tests.blocks import PAGES, blocks
from tests.conftest import ROOT

# They have generated or long tables.
WIDE = (
    "checkouts.md",
    "embedded.md",
    "embedded_tables.md",
    "embedded_weights.md",
    "choosing.md",
    "plugin.md",
)
LANGUAGES = ("bash", "python", "yaml", "text", "sh", "json", "slurm")
BASH = [(page, block) for page in PAGES for block in (*blocks(page, "bash"), *blocks(page, "sh"))]
PYTHON = [(page, block) for page in PAGES for block in blocks(page, "python")]


def names(cases: list[tuple[Path, str]]) -> list[str]:
    return [f"{page.stem}-{block.split(chr(10))[0][:30]}" for page, block in cases]


@cache
def sources() -> str:
    """All that reads options: the commands, their scripts and train.py."""
    folders = ("coop_cmp", "datasets", "scripts", "benchmarks", "tests")
    files = [
        f for folder in folders for f in (ROOT / folder).rglob("*") if f.suffix in (".py", ".sh")
    ]
    return "\n".join(f.read_text(encoding="utf-8") for f in [*files, ROOT / "train.py"])


def commands(block: str) -> list[list[str]]:
    """The words of each command in a block of shell code, without comments and pipes."""
    lines = block.replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        for part in re.split(r"\s(?:\|\||&&|\||;)\s", line):
            words = [w for w in shlex.split(part, comments=True) if w != "..."]
            while words and (re.fullmatch(r"[A-Z_]+=.*", words[0]) or words[0] == "$"):
                words.pop(0)
            found += [words] if words else []
    return found


@pytest.mark.parametrize(("page", "block"), BASH, ids=names(BASH))
def test_shell_code_calls_what_there_is_with_options_that_there_are(page, block):
    plain = re.sub(r"<[^<>\n]+>", "X", block)  # <run> stands for a name
    done = subprocess.run(["bash", "-n"], input=plain, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    for words in commands(plain):
        program, *rest = words
        options = [word.partition("=")[0] for word in rest if re.match(r"--[a-z]", word)]
        if program == "bash" and rest[0].startswith(("scripts/", ".ci/")):
            assert (ROOT / rest[0]).is_file(), words
        elif program in ("python", "python3") and rest[0] == "-m":
            if not rest[1].startswith("coop_cmp"):
                continue  # pip, venv, pytest
            assert find_spec(rest[1]), words
        elif program in ("python", "python3") and rest[0].endswith(".py"):
            assert (ROOT / rest[0]).is_file(), words
            if rest[0] == "train.py":
                for key, value in pairs(cli.parse(["train", *rest[1:]])[1].opts).items():
                    read(key, value)
        elif program == "coop-cmp":
            assert rest[0] in cli.COMMANDS, words
        else:
            continue  # pip, cd and the like
        for option in options:
            assert re.search(rf"""["'| ]{re.escape(option)}\b""", sources()), (option, words)


@pytest.mark.parametrize(("page", "block"), PYTHON, ids=names(PYTHON))
def test_python_code_parses_and_imports_what_there_is(page, block):
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("coop_cmp"):
            module = __import__(node.module, fromlist=["*"])
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def test_the_readmes_lines_on_the_penalty_agree_with_each_other():
    (block,) = [b for b in blocks(ROOT / "README.md", "python") if "CMPenalty" in b]
    logits, labels = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([0, 0])
    known = {"F": torch.nn.functional, "logits": logits, "labels": labels}
    known |= {"criterion": torch.nn.CrossEntropyLoss()}
    first, second, *_ = [part for part in block.split("\n\n") if "loss = " in part]
    losses = []
    for part in (first, second):
        exec("from coop_cmp import CMPenalty, cmp_loss\n" + part, known)
        losses.append(float(known["loss"]))
    plain = torch.nn.functional.cross_entropy(logits, labels)
    assert losses[0] == losses[1] == pytest.approx(float(plain + 0.01 * cmp_loss(logits, labels)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_link_to_files_and_name_settings_that_there_are(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        if not target.startswith("reference/"):  # made while the site is built
            assert (page.parent / target).exists(), target
    for block in blocks(page, "yaml"):
        yaml.safe_load(block)
    assert set(re.findall(r"^```(\w*)$", text, re.MULTILINE)[::2]) <= set(LANGUAGES)
    long = [line for line in text.splitlines() if len(line) > 120]
    assert page.name in WIDE or not long
    keys = re.findall(
        r"`((?:DATASET|OPTIM|MODEL|INPUT|DATALOADER|TEST|TRAIN)\.[A-Z_.0-9]+)\b", text
    )
    for key in keys:
        assert key in SETTINGS or any(name.startswith(f"{key}.") for name in SETTINGS), key
