"""docs/choosing.md says what the tables in docs/embedded.md say, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from tests.conftest import ROOT

CHOOSING = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")
PLACES = ("seen", "new", "shifts")
METRICS = ("Acc", "ECE", "NLL")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def printed() -> dict[tuple[str, str, str], str]:
    """``-3.05 (-4.49 to -1.60)`` by method, rival and column of embedded_calibrators."""
    text = (ROOT / "docs/embedded.md").read_text(encoding="utf-8")
    found: dict[tuple[str, str, str], str] = {}
    for block in text.partition("### embedded_calibrators")[2].split("\n**")[1:]:
        method = re.split(r"[, ]", block)[0].replace("Zero-shot", "ZeroshotCLIP")
        rows = [cells(line) for line in block.splitlines() if line.startswith("|")]
        for change, interval in pairwise(rows):
            if interval[1] == "95 %":
                rival = change[1].removeprefix("by ")
                for head, value, ends in zip(rows[0][2:], change[2:], interval[2:], strict=True):
                    # A number in brackets stands for a seed that is missing.
                    value = re.sub(r" \[\d+\]", "", value)
                    found[method, rival, head] = f"{value} ({ends})" if ends else ""
    return found


def claimed() -> Iterator[tuple[tuple[str, str, str], str]]:
    for place, section in zip(PLACES, re.split(r"\n## ", CHOOSING)[2:5], strict=True):
        rows = [cells(line) for line in section.splitlines() if line.startswith("| ")]
        for method, rival, *values in rows[1:]:
            for metric, value in zip(METRICS, values, strict=True):
                yield (method, rival, f"{metric}, {place}"), value


def test_every_number_in_the_answer_is_in_the_tables():
    tables, answers = printed(), dict(claimed())
    assert len(answers) > 100
    assert {key: tables[key] for key in answers} == answers


def test_whatever_lowers_the_ece_for_sure_enough_is_in_the_answer():
    """A choice of lines could hide the best: all whose interval lies below zero are there."""
    answers = dict(claimed())
    below = [
        key
        for key, text in printed().items()
        if "ECE" in key[2] and re.search(r"to -", text) and key not in answers
    ]
    assert below == []
