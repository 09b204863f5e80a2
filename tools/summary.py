"""Write tables of the embedded results into the pages that read them.

  python -m tools.summary docs/embedded.csv docs/embedded.md docs/choosing.md

The first file is what ``coop-cmp tables show ... --format csv`` prints. A page says in a comment
which table follows, and this program puts it there (``wrong`` and ``gradient`` are of training):

  <!-- TABLE / BLOCK / ROW, ROW, ... / COLUMN, ours; COLUMN, change; COLUMN, interval -->
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from tabulate import tabulate

MARK = re.compile(r"(<!-- (embedded_\w+) / (.+?) / (.+?) / (.+?) -->\n)((?:\|.*\n)*)")
Rows = dict[tuple[str, str, str, str], dict[str, str]]


def read_summary(path: Path) -> Rows:
    """Return the lines of a summary by table, block, row and column."""
    with path.open(newline="", encoding="utf-8") as file:
        return {
            (line["table"], line["block"], line["row"], line["column"]): line
            for line in csv.DictReader(file)
        }


def number(text: str, column: str) -> str:
    """Format a number as the tables do: three decimals for NLL, two for percent."""
    if not text:
        return ""
    shown = f"{float(text):{'+' if text[0] in '+-' else ''}.{3 if 'nll' in column else 2}f}"
    return shown.lstrip("+-") if float(shown) == 0 else shown


def cell(line: dict[str, str], kind: str) -> str:
    """Return what a table shows of a line: ours, change, interval, or what training measured."""
    metric = line["metric"]
    if kind == "interval":
        ends = [number(line[end], metric) for end in ("low", "high")]
        return " to ".join(ends) if all(ends) else ""
    text = number(line[kind], metric)
    sure = kind == "change" and line["holds"] == "true" and float(text) != 0
    return f"**{text}**" if sure else text


def head(column: str, kind: str) -> str:
    """Return the head of a column of a page."""
    column = column.replace("mean confidence - Acc", "gap")
    return {"ours": column, "change": f"{column}: change", "interval": "95 %"}.get(kind, kind)


def tables(page: str, summary: Rows) -> str:
    """Return the page with its tables made from the summary."""

    def fill(match: re.Match[str]) -> str:
        mark, name, block, rows, columns = match.groups()[:5]
        wanted = [column.rpartition(", ")[::2] for column in columns.split("; ")]
        heads = [head(column, kind) for column, kind in wanted]
        lines = []
        for row in rows.split(", "):
            found = [(summary[name, block, row, column], kind) for column, kind in wanted]
            lines.append([row, *(cell(line, kind) for line, kind in found)])
        text = tabulate(lines, ["", *heads], tablefmt="github", disable_numparse=True)
        return f"{mark}{re.sub('  +', ' ', re.sub('-{4,}', '---', text))}\n"

    return MARK.sub(fill, page)


if __name__ == "__main__":
    found = read_summary(Path(sys.argv[1]))
    for page in map(Path, sys.argv[2:]):
        page.write_text(tables(page.read_text(encoding="utf-8"), found), encoding="utf-8")
