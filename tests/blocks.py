"""The code blocks of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in a language, in their order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
