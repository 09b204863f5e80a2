"""A table as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import Literal, get_args

from tabulate import tabulate

from coop_cmp.metrics.records import find_metric
from coop_cmp.report.collect import Value
from coop_cmp.report.definitions import default_seeds
from coop_cmp.report.layout import Block, Cell, Table
from coop_cmp.report.summary import mean_and_deviation, mean_text
from coop_cmp.runs.run import Run

Format = Literal["text", "markdown", "latex", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)
CSV_HEAD = (
    "table,block,row,column,metric,paper,ours,deviation,seeds,difference,change,low,high,p,holds,"
    "training,wrong,gradient\n"
)
SCRIPT = "bash scripts/tables.sh"

_TABULATE = {"text": "simple", "markdown": "github", "latex": "latex_raw"}
_HEADS = {"text": "{}", "markdown": "### {}", "latex": "\\subsection*{{{}}}"}
_SUBHEADS = {"text": "{}", "markdown": "**{}**", "latex": "\\paragraph{{{}}}"}
_LATEX = str.maketrans({"&": r"\&", "_": r"\_", "%": r"\%", "#": r"\#", "±": r"$\pm$"})
_STRONG = {"text": "{} *", "markdown": "**{}**", "latex": "\\textbf{{{}}}"}


@dataclass(frozen=True)
class Renderer:
    """A table with its values, ready to be written.

    Args:
        problems: results that could not be used or compared, with their paths.
        holm: whether the comparisons were corrected as one family.
    """

    table: Table
    values: Mapping[Cell, Value]
    problems: Sequence[str] = ()
    form: Format = "text"
    holm: bool = False

    def render(self) -> str:
        """The whole table with its notes and the commands that fill what is missing.

        As CSV the lines alone, so that those of several tables fit below one ``CSV_HEAD``.
        """
        if self.form == "csv":
            return self._csv()
        parts = [_HEADS[self.form].format(self._escape(f"{self.table.name}: {self.table.title}"))]
        for block in self.table.blocks:
            parts += [_SUBHEADS[self.form].format(self._escape(block.title)), self._block(block)]
        warnings = [f"Warning: {problem}" for problem in self.problems]
        notes = [self._legend(), *self.table.notes]
        if self.form == "text":
            notes = [fill(note, 100, subsequent_indent="    ") for note in notes]
        parts.append(self._list([*notes, *warnings]))
        if self.commands and self.form != "latex":  # no place for commands in a paper
            lines = [f"[{number}] {command}" for command, number in self.commands.items()]
            everything = f"all: {self._run()}"
            parts += ["Commands for the missing cells", self._list([*lines, everything])]
        return "\n\n".join(parts) + "\n"

    @cached_property
    def commands(self) -> dict[str, int]:
        """The commands that do the missing runs, a variant's baseline included, numbered from 1."""
        values = [self.values[cell] for cell in self.table.cells()]
        runs = [part for value in values for part in (value.missing, value.baseline_missing)]
        found = dict.fromkeys(self._command(missing) for missing in runs if missing)
        return {command: number for number, command in enumerate(found, 1)}

    @cached_property
    def _shots(self) -> set[int]:
        return {cell.runs[0][0].shots for cell in self.table.cells() if cell.runs} - {0}

    def _command(self, missing: Sequence[Run]) -> str:
        run = missing[0]
        only = f" --shots {run.shots}" if run.shots and len(self._shots) > 1 else ""
        return self._run(f" --trainers {run.trainer}{only}")

    def _run(self, only: str = "") -> str:
        seeds = self.table.seeds
        named = (
            ""
            if seeds == default_seeds(self.table.name)
            else f" --seeds {' '.join(map(str, seeds))}"
        )
        return f"{SCRIPT} run {self.table.name}{only}{named}"

    def _number(self, missing: Sequence[Run]) -> str:
        told = missing and self.form != "latex"
        return f"[{self.commands[self._command(missing)]}]" if told else ""

    def _block(self, block: Block) -> str:
        rows: list[list[str]] = []
        for label, cells in zip(block.rows, block.cells, strict=True):
            lines = {"ours": [self._ours(cell) for cell in cells]}
            if any(cell.paper for cell in cells):
                lines["paper"] = [cell.paper.text if cell.paper else "" for cell in cells]
                lines["difference"] = [self._to_paper(cell) for cell in cells]
            names = filter(None, (cell.changed_by for cell in cells))
            lines[f"by {next(names, '')}"] = [self._change(cell) for cell in cells]
            lines["95 %"] = [self._interval(cell) for cell in cells]
            lines["in training"] = self._fits(cells)
            for kind, texts in lines.items():
                if any(texts):
                    rows.append([label if kind == "ours" else "", kind, *texts])
        header = ["", "", *block.columns]
        cleaned = [[self._escape(text) for text in row] for row in [header, *rows]]
        style = _TABULATE[self.form]
        text = tabulate(cleaned[1:], cleaned[0], tablefmt=style, disable_numparse=True)
        for rule in ("top", "mid", "bottom") if self.form == "latex" else ():
            text = text.replace("\\hline", f"\\{rule}rule", 1)  # booktabs
        return text

    def _ours(self, cell: Cell) -> str:
        value = self.values[cell]
        if not cell.runs:
            return "n/a"
        parts = [mean_text(list(value.by_seed.values()), cell.metric)] if value.by_seed else []
        return " ".join(filter(None, [*parts, self._number(value.missing)]))

    def _to_paper(self, cell: Cell) -> str:
        ours = self.values[cell].by_seed.values()
        if not cell.paper or not ours:
            return ""
        return f"{100 * mean_and_deviation(list(ours))[0] - cell.paper.value:+.2f}"

    def _change(self, cell: Cell) -> str:
        value = self.values[cell]
        if not value.by_seed:
            return ""  # the number in the cell itself comes first
        text = _signed(value.change.estimate, cell.metric) if value.change else ""
        if text and float(text) == 0:
            text = text.lstrip("+-")  # however sure, it is nothing
        elif value.change and value.change.holds:
            text = _STRONG[self.form].format(text)
        return " ".join(filter(None, [text, self._number(value.baseline_missing)]))

    def _interval(self, cell: Cell) -> str:
        change = self.values[cell].change or self.values[cell].own
        if change is None or math.isnan(change.low) or not self.values[cell].by_seed:
            return ""
        return " to ".join(_signed(end, cell.metric) for end in (change.low, change.high))

    def _fits(self, cells: Sequence[Cell]) -> list[str]:
        """What a term did in training; once where cells are of the same runs."""
        fits = [self.values[cell].fit for cell in cells]
        new = [fit if fit != before else () for before, fit in zip([(), *fits], fits, strict=False)]
        return [" / ".join(f"{100 * share:.2f}" for share in fit) for fit in new]

    def _legend(self) -> str:
        nats = any(cell.metric == "nll" for cell in self.table.cells())
        units = "Percent, NLL in nats" if nats else "Percent"
        text = f"{units}; mean ± standard deviation over seeds. ECE, ACE and MCE with 10 bins."
        if any(cell.paper for cell in self.table.cells()):
            text += ' "difference" is ours minus the paper\'s.'
        if any(cell.baseline for cell in self.table.cells()):
            mark = "marked *" if self.form == "text" else "bold"
            text += (
                ' "by ..." is the change against the method without it, with its 95 % interval over'
                f" seeds and test images, {mark} where it is significant"
            )
            text += f". {self._family()}" if self.holm else "."
        if self.table.own:
            text += ' "95 %" is the interval of the mean, over seeds and test images.'
        if any(self.values[cell].fit for cell in self.table.cells()):
            text += (
                ' "in training": accuracy in the last tenth of the epochs / samples that were wrong'
                " / size of the term's gradient in the logits against the cross-entropy's."
            )
        return text

    def _family(self) -> str:
        seeds = len(self.table.seeds)
        text = (
            "Significance is Holm-corrected over each column of a block (one metric in one place), "
            f"with {seeds - 1} degrees of freedom ({seeds} seeds)"
        )
        return f"{text}; so few seeds can show next to nothing." if seeds < 5 else f"{text}."

    def _list(self, lines: Sequence[str]) -> str:
        if self.form == "text":
            return "\n".join(lines)
        if self.form == "latex":
            return "\n\n".join(map(self._escape, lines))
        return "\n".join(f"- {line}" for line in lines)

    def _escape(self, text: str) -> str:
        return text.translate(_LATEX) if self.form == "latex" else text

    def _csv(self) -> str:
        """One line per cell, in percent, for other programs."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for block in self.table.blocks:
            for row, cells in zip(block.rows, block.cells, strict=True):
                for column, cell in zip(block.columns, cells, strict=True):
                    place = [self.table.name, block.title, row, column, cell.metric]
                    writer.writerow([*place, *self._csv_numbers(cell)])
        return out.getvalue()

    def _csv_numbers(self, cell: Cell) -> list[object]:
        value = self.values[cell]
        by_seed = list(value.by_seed.values())
        times = find_metric(cell.metric).scale
        center, deviation = mean_and_deviation(by_seed) if by_seed else (None, None)

        def text(number: float | None, form: str = ".4f") -> str:
            return "" if number is None or math.isnan(number) else f"{times * number:{form}}"

        paper = cell.paper.text if cell.paper else ""
        row = [paper, text(center), text(deviation), len(by_seed), self._to_paper(cell)]
        if (change := value.change) is not None:
            row += [text(v, "+.4f") for v in (change.estimate, change.low, change.high)]
            row += ["" if math.isnan(change.p) else f"{change.p:.4g}", str(change.holds).lower()]
        else:
            ends = (value.own.low, value.own.high) if value.own else (None, None)
            row += ["", *map(text, ends), "", ""]
        return row + ([f"{100 * share:.4f}" for share in value.fit] or [""] * 3)


def _signed(value: float, metric: str) -> str:
    return find_metric(metric).number(value, signed=True)
