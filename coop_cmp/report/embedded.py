"""The paper's tables in miniature, and what it has none for: GlyphCLIP on embedded data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coop_cmp.losses.names import TERMS, twin_of
from coop_cmp.report.layout import Block, Cell, Recipe, heading, metric_blocks
from coop_cmp.runs.run import LAMBDAS, TEST_TIME, shots_text

FITTED = ("vector", "dirichlet", "isotonic", "histogram")  # values for each class
PROMPT_LEARNERS = ("CoOp", "CoCoOp", "ProDA", "MaPLe", "KgCoOp")
TWINS = tuple(f"{name}{twin}" for name in PROMPT_LEARNERS for twin in ("", "_CMP"))
SHIFTS = ("digits_noise", "digits_blur", "digits_rotate", "digits_invert")
EMBEDDED = {
    "embedded_methods": "Every method with and without the penalty",
    "embedded_fewshot": "The same with fewer shots",
    "embedded_domain": "Domain generalisation: trained on digits, tested on four shifts",
    "embedded_lambda": "The weight of the penalty",
    "embedded_finetuning": "Fine-tuning with and without the penalty",
    "embedded_base2new": "Trained on five of the ten digits, tested on both halves",
    "embedded_glyphs": "Many classes: 47 letters and digits in unknown typefaces",
    "embedded_calibrators": "Every rival, on seen classes, new ones and shifts",
}
CALIBRATORS = "embedded_calibrators"
CALIBRATED = ("CoOp", "KgCoOp", "MaPLe")
CALIBRATORS_NOTE = (
    f"Of the methods {', '.join(CALIBRATED)}; others are left out for the time they take. "
    "Calibrators with values for each class are not applicable to new classes, DAC is for them "
    'alone. "new" is trained on five of the digits and tested on the others, "shifts" is the mean '
    "of the four."
)
POSTHOC = ("temperature", "temperature-map", *FITTED, "sals", "dac")


def embedded_blocks(name: str, seeds: tuple[int, ...]) -> list[Block]:
    """The blocks of one of the miniatures."""
    recipe = Recipe("GlyphCLIP", seeds, source="digits")
    if name == CALIBRATORS:
        return _calibrators_blocks(recipe)
    if name == "embedded_base2new":
        return _base2new_blocks(recipe)
    if name == "embedded_lambda":
        return _lambda_blocks(recipe, "digits", (*PROMPT_LEARNERS, "CLIPFT"), LAMBDAS)
    if name == "embedded_glyphs":
        return _lambda_blocks(Recipe("GlyphCLIP", seeds), "glyphs", CALIBRATED, (0.01, 0.1, 0.95))
    columns: dict[str, tuple[str, ...]] = {"digits": ("digits",)}
    methods, shots = ["ZeroshotCLIP", *TWINS], [8]
    metrics = ["accuracy", "ece", "ace", "weighted_mce", "mce"]
    if name == "embedded_domain":
        columns |= {shift.removeprefix("digits_"): (shift,) for shift in SHIFTS}
        columns["mean of shifts"] = SHIFTS
        metrics = ["accuracy", "ece"]
    elif name == "embedded_fewshot":
        shots = [1, 2, 4]
    elif name == "embedded_finetuning":
        methods = ["ZeroshotCLIP", "CLIPFT", "CLIPFT_CMP"]

    blocks: list[Block] = []
    for count in shots:

        def cell(method: str, label: str, metric: str, count: int = count) -> Cell:
            return recipe.cell(method, columns[label], count, metric)

        blocks += metric_blocks(shots_text(count), methods, list(columns), metrics, cell)
    return blocks


def _lambda_blocks(
    recipe: Recipe, dataset: str, methods: Sequence[str], lambdas: Sequence[float]
) -> list[Block]:
    """Three metrics for every weight and method; the first row is the baseline itself."""

    def cell(row: str, method: str, metric: str) -> Cell:
        if row == "no penalty":
            return recipe.cell(method, (dataset,), 8, metric)
        return recipe.cell(f"{method}_CMP", (dataset,), 8, metric, lam=float(row.split()[1]))

    rows = ["no penalty", *(f"lambda {lam:g}" for lam in lambdas)]
    return metric_blocks(f"8 shots, {dataset}", rows, methods, ["accuracy", "gap", "ece"], cell)


def _base2new_blocks(recipe: Recipe) -> list[Block]:
    """Accuracy and calibration on the classes of the training and on the others."""

    def cell(method: str, label: str, metric: str) -> Cell:
        return _of_classes(recipe.cell(method, ("digits",), 8, metric), label)

    metrics = ["accuracy", "gap", "ece", "nll"]
    return metric_blocks("8 shots", ["ZeroshotCLIP", *TWINS], ["base", "new"], metrics, cell)


def _of_classes(cell: Cell, classes: Any) -> Cell:
    """The same after a training on the base classes, tested on these."""
    runs = (tuple(replace(run, classes=classes) for run in runs) for runs in cell.runs)
    return replace(cell, runs=tuple(runs))


def _calibrators_blocks(recipe: Recipe) -> list[Block]:
    """Zero-shot CLIP and some of the methods, each with all that can be done about it."""
    tuned = {"plain": "ZeroshotCLIP"} | {method: method for method in TEST_TIME}
    blocks = [_rivals_block(recipe, "Zero-shot CLIP and prompts tuned at test time", tuned)]
    for method in CALIBRATED:
        rows = {"plain": method} | {term: twin_of(method, term) for term in TERMS}
        rows |= {"BPEFT": "BPEFT"} if method == "CoOp" else {}
        rows |= dict.fromkeys(POSTHOC, method)
        blocks.append(_rivals_block(recipe, f"{method}, 8 shots", rows))
    return blocks


def _rivals_block(recipe: Recipe, title: str, rows: dict[str, str]) -> Block:
    """One method, plain and with each of its rivals, wherever that can be used.

    Args:
        rows: the trainer of each row; a row with the name of a calibrator is calibrated with it.
    """
    heads = {
        f"{heading(metric)}, {place}": (place, metric)
        for place in ("seen", "new", "shifts")
        for metric in ("accuracy", "ece", "nll")
    }

    def cell(row: str, head: str) -> Cell:
        place, metric = heads[head]
        # Values for each class have nothing to say of new ones; DAC is for new ones alone.
        if (row in FITTED and place == "new") or (row == "dac" and place != "new"):
            return Cell((), metric)
        found = recipe.cell(rows[row], SHIFTS if place == "shifts" else ("digits",), 8, metric)
        found = _of_classes(found, "new") if place == "new" else found
        calibrator = row if row in POSTHOC else ""
        runs = (tuple(replace(run, calibrator=calibrator) for run in runs) for runs in found.runs)
        return replace(found, runs=tuple(runs))

    return Block.fill(title, list(rows), list(heads), cell)
