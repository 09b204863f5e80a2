"""Tables of the embedded model and data: its regime, and the penalty and its rivals in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coop_cmp.losses.names import TERMS, twin_of
from coop_cmp.report.layout import Block, Cell, Recipe, heading, metric_blocks
from coop_cmp.runs.run import TEST_TIME, shots_text

SEEDS = tuple(range(1, 11))  # where something is claimed
SHOTS = 1  # where CoOp fits its shots; of all tables but that of the regime
METHODS = ("CoOp", "ProDA", "MaPLe", "KgCoOp", "CLIPFT")  # CoCoOp takes long on many classes
SHIFTS = ("noise", "blur", "rotate", "invert")
PLACES = ("seen", "new", "shifts")
OWN_CONTEXT = (("TRAINER.COOP.CSC", "True"),)
WEIGHTS = {"ratio": (0.001, 0.01, 0.1, 0.95), "log": (0.001, 0.01, 0.1, 0.95, 3.0, 10.0)}
FITTED = ("vector", "dirichlet", "isotonic", "histogram")  # values for each class
POSTHOC = ("temperature", "temperature-map", *FITTED, "sals", "dac")
EMBEDDED = {
    "embedded_regime": "The regime: how CoOp fits its shots, and how confident it is then",
    "embedded_lambda": "The weight of the penalty, in both forms",
    "embedded_methods": "Methods with and without the penalty",
    "embedded_digits": "The same on handwritten digits",
    "embedded_calibrators": "Every rival of the penalty",
}
CALIBRATORS = "embedded_calibrators"
PLACES_NOTE = (
    'Trained on the first half of the classes. "seen" are those, "new" the others, "shifts" the '
    "mean over noise, blur, rotation and inversion of those seen."
)
CALIBRATORS_NOTE = (
    "Calibrators with values for each class are not applicable to new classes, DAC is for them "
    "alone."
)


def embedded_blocks(name: str, seeds: tuple[int, ...]) -> list[Block]:
    """Return the blocks of one of the tables."""
    recipe = Recipe("GlyphCLIP", seeds)
    if name == "embedded_regime":
        return _regime_blocks(recipe)
    if name == "embedded_lambda":
        return [_lambda_block(recipe, own, form) for own in (False, True) for form in WEIGHTS]
    if name == CALIBRATORS:
        return _calibrators_blocks(recipe)
    if name == "embedded_digits":
        rows = _with_twins((*METHODS, "CoCoOp"))

        def cell(method: str, label: str, metric: str) -> Cell:
            return recipe.cell(method, (label,), 8, metric)

        return metric_blocks("8 shots", rows, ["digits"], ["accuracy", "gap", "ece", "nll"], cell)
    methods = {method: method for method in _with_twins(METHODS)}
    return [_places_block(recipe, shots_text(SHOTS), methods, ("accuracy", "gap", "ece"))]


def _with_twins(methods: Sequence[str]) -> list[str]:
    return ["ZeroshotCLIP", *(m for method in methods for m in (method, twin_of(method)))]


def _regime_blocks(recipe: Recipe) -> list[Block]:
    """How CoOp fits and generalises for each number of shots, with either kind of context."""
    heads = {
        f"{heading(metric)}, {place}": (place, metric)
        for place, metric in [
            *(("seen", metric) for metric in ("fit.accuracy", "fit.wrong")),
            *((place, metric) for place in PLACES for metric in ("accuracy", "gap", "ece")),
        ]
    }
    blocks = []
    for context in ("shared", "own"):

        def cell(row: str, head: str, own: bool = context == "own") -> Cell:
            place, metric = heads[head]
            # Zero-shot CLIP learns nothing, and contexts of classes say nothing of other classes.
            if (row == "zero-shot" and metric.startswith("fit.")) or (own and place == "new"):
                return Cell((), metric)
            if row == "zero-shot":
                return _in_place(recipe, "ZeroshotCLIP", place, metric)
            found = _in_place(recipe, "CoOp", place, metric, int(row.split()[0]))
            return _with_own_context(found) if own else found

        rows = [shots_text(shots) for shots in (1, 2, 4, 8, 16)]
        rows = ["zero-shot", *rows] if context == "shared" else rows
        blocks.append(Block.fill(f"CoOp, {context} context", rows, list(heads), cell))
    return blocks


def _in_place(
    recipe: Recipe, trainer: str, place: str, metric: str, shots: int = SHOTS, **penalty: Any
) -> Cell:
    """The cell of a method on the glyphs: on seen classes, on new ones, or under the shifts."""
    names = [f"glyphs_{shift}" for shift in SHIFTS] if place == "shifts" else ["glyphs"]
    classes: Any = "new" if place == "new" else "base"
    found = replace(recipe, source="glyphs").cell(trainer, names, shots, metric, **penalty)
    return found.map(lambda run: replace(run, classes=classes))


def _lambda_block(recipe: Recipe, own: bool, form: str) -> Block:
    """CoOp with every weight; the first row is CoOp itself."""
    heads = _heads(("accuracy", "gap", "ece"), ("seen",) if own else ("seen", "new"))

    def cell(row: str, head: str) -> Cell:
        place, metric = heads[head]
        if row == "no penalty":
            found = _in_place(recipe, "CoOp", place, metric)
        else:
            lam = float(row.split()[1])
            found = _in_place(recipe, "CoOp_CMP", place, metric, lam=lam, form=form)
        return _with_own_context(found) if own else found

    rows = ["no penalty", *(f"lambda {lam:g}" for lam in WEIGHTS[form])]
    context = "own" if own else "shared"
    title = f"CoOp, {context} context, {shots_text(SHOTS)}, form {form}"
    return Block.fill(title, rows, list(heads), cell)


def _with_own_context(cell: Cell) -> Cell:
    """The same of runs in which every class has a context of its own."""
    return cell.map(lambda run: replace(run, options=OWN_CONTEXT, tag="csc"))


def _calibrators_blocks(recipe: Recipe) -> list[Block]:
    """Zero-shot CLIP and CoOp, each with all that can be done about it."""
    tuned = {"plain": "ZeroshotCLIP"} | {method: method for method in TEST_TIME}
    rows = {"plain": "CoOp"} | {term: twin_of("CoOp", term) for term in TERMS}
    rows |= {"BPEFT": "BPEFT"} | dict.fromkeys(POSTHOC, "CoOp")
    metrics, places = ("accuracy", "ece", "nll"), ("seen", "new")
    return [
        _places_block(recipe, "Prompts tuned at test time", tuned, metrics, places),
        _places_block(recipe, f"CoOp, {shots_text(SHOTS)}", rows, metrics, places),
    ]


def _heads(metrics: Sequence[str], places: Sequence[str] = PLACES) -> dict[str, tuple[str, str]]:
    """Place and metric by the head of a column."""
    pairs = [(place, metric) for place in places for metric in metrics]
    return {f"{heading(metric)}, {place}": (place, metric) for place, metric in pairs}


def _places_block(
    recipe: Recipe,
    title: str,
    rows: dict[str, str],
    metrics: Sequence[str],
    places: Sequence[str] = PLACES,
) -> Block:
    """Metrics on seen classes, new ones and under shift, wherever a row can be used.

    Args:
        rows: the trainer of each row; a row with the name of a calibrator is calibrated with it.
    """
    heads = _heads(metrics, places)

    def cell(row: str, head: str) -> Cell:
        place, metric = heads[head]
        # Values for each class have nothing to say of new ones; DAC is for new ones alone.
        if (row in FITTED and place == "new") or (row == "dac" and place != "new"):
            return Cell((), metric)
        found = _in_place(recipe, rows[row], place, metric)
        calibrator = row if row in POSTHOC else ""
        return found.map(lambda run: replace(run, calibrator=calibrator))

    return Block.fill(title, list(rows), list(heads), cell)
