"""The pages on the embedded results say what the stored summary says, and that is up to date."""

from __future__ import annotations

import re

import pytest

from coop_cmp.report.definitions import table
from coop_cmp.report.embedded import EMBEDDED
from tests.conftest import ROOT
from tools.summary import number, read_summary, tables

SUMMARY = read_summary(ROOT / "docs/embedded.csv")
PAGES = ("embedded.md", "choosing.md")
WEIGHTS = (ROOT / "docs/embedded_weights.md").read_text(encoding="utf-8")  # what searches printed
NUMBER = r"(?<![\w.])[+-]?\d+\.\d{2,3}(?![\w.])"
STATED = {"0.001", "0.003", "0.002", "0.05", "0.03", "0.01", "0.95"}  # settings
STATED |= {"56.30", "44.44", "12.92"}  # of the command beside them


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_those_of_the_summary(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text.count("<!-- embedded_") >= 2
    assert tables(text, SUMMARY) == text, "python -m tools.summary docs/embedded.csv docs/*.md"


def test_another_number_in_the_summary_changes_the_page():
    text = (ROOT / "docs/embedded.md").read_text(encoding="utf-8")
    key = next(key for key in SUMMARY if key[2] == "1 shot" and key[3] == "Acc, new")
    other = SUMMARY | {key: SUMMARY[key] | {"ours": "12.3456"}}
    assert "12.35" in tables(text, other) != text


@pytest.mark.parametrize("page", PAGES)
def test_every_number_in_the_sentences_is_in_the_summary(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    prose = "\n".join(line for line in text.splitlines() if not line.startswith(("|", "<!--")))
    kinds = ("ours", "change", "low", "high", "training", "wrong", "gradient")
    known = {number(line[kind], line["metric"]) for line in SUMMARY.values() for kind in kinds}
    known |= set(re.findall(NUMBER, WEIGHTS))
    known |= {value.lstrip("+-") for value in known} | STATED
    assert [found for found in re.findall(NUMBER, prose) if found not in known] == []


def test_the_summary_is_of_the_tables_as_they_are_defined():
    defined = {
        (name, block.title, row, column)
        for name in EMBEDDED
        for block in table(name).blocks
        for row in block.rows
        for column in block.columns
    }
    assert set(SUMMARY) == defined
