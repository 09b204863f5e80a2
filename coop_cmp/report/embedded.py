"""Tables of the embedded model and data: its regime, and the penalty and its rivals in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coop_cmp.losses.names import TERMS, twin_of
from coop_cmp.report.layout import Block, Cell, Recipe, heading, metric_blocks
from coop_cmp.runs.run import DEFAULT_FORM, DEFAULT_LAMBDA, TEST_TIME, shots_text

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


@dataclass(frozen=True)
class Way:
    """How the runs of a row are made.

    Attributes:
        own: Whether every class has a context of its own.
    """

    trainer: str
    shots: int = SHOTS
    lam: float = DEFAULT_LAMBDA
    form: str = DEFAULT_FORM
    own: bool = False
    calibrator: str = ""

    def cell(self, recipe: Recipe, place: str, metric: str) -> Cell:
        """The cell on the glyphs: on seen classes, on new ones, or under the shifts."""
        # Zero-shot CLIP learns nothing, values for each class have nothing to say of new ones,
        # and DAC is for new ones alone.
        untrained = self.trainer == "ZeroshotCLIP" and metric.startswith("fit.")
        of_seen = self.own or self.calibrator in FITTED
        if untrained or (of_seen if place == "new" else self.calibrator == "dac"):
            return Cell((), metric)
        names = [f"glyphs_{shift}" for shift in SHIFTS] if place == "shifts" else ["glyphs"]
        found = replace(recipe, source="glyphs").cell(
            self.trainer, names, self.shots, metric, lam=self.lam, form=self.form
        )
        classes = "new" if place == "new" else "base"
        changes: dict[str, Any] = {"classes": classes, "calibrator": self.calibrator}
        changes |= {"options": OWN_CONTEXT, "tag": "csc"} if self.own else {}
        return found.map(lambda run: replace(run, **changes))


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
    ways = {method: Way(method) for method in _with_twins(METHODS)}
    return [_block(recipe, shots_text(SHOTS), ways, _columns(("accuracy", "gap", "ece")))]


def _with_twins(methods: Sequence[str]) -> list[str]:
    return ["ZeroshotCLIP", *(m for method in methods for m in (method, twin_of(method)))]


def _regime_blocks(recipe: Recipe) -> list[Block]:
    """How CoOp fits and generalises for each number of shots, with either kind of context."""
    fit = _columns(("fit.accuracy", "fit.wrong"), ("seen",))
    columns = [*fit, *_columns(("accuracy", "gap", "ece"))]
    blocks = []
    for own in (False, True):
        ways = {} if own else {"zero-shot": Way("ZeroshotCLIP")}
        ways |= {shots_text(shots): Way("CoOp", shots, own=own) for shots in (1, 2, 4, 8, 16)}
        blocks.append(_block(recipe, f"CoOp, {_context(own)}", ways, columns))
    return blocks


def _lambda_block(recipe: Recipe, own: bool, form: str) -> Block:
    """CoOp with every weight; the first row is CoOp itself."""
    ways = {"no penalty": Way("CoOp", own=own)}
    for lam in WEIGHTS[form]:
        ways[f"lambda {lam:g}"] = Way("CoOp_CMP", lam=lam, form=form, own=own)
    columns = _columns(("accuracy", "gap", "ece"), ("seen",) if own else ("seen", "new"))
    title = f"CoOp, {_context(own)}, {shots_text(SHOTS)}, form {form}"
    return _block(recipe, title, ways, columns)


def _context(own: bool) -> str:
    return f"{'own' if own else 'shared'} context"


def _calibrators_blocks(recipe: Recipe) -> list[Block]:
    """Zero-shot CLIP and CoOp, each with all that can be done about it."""
    tuned = {"plain": Way("ZeroshotCLIP")} | {method: Way(method) for method in TEST_TIME}
    ways = {"plain": Way("CoOp")} | {term: Way(twin_of("CoOp", term)) for term in TERMS}
    ways |= {"BPEFT": Way("BPEFT")} | {name: Way("CoOp", calibrator=name) for name in POSTHOC}
    columns = _columns(("accuracy", "ece", "nll"), ("seen", "new"))
    return [
        _block(recipe, "Prompts tuned at test time", tuned, columns),
        _block(recipe, f"CoOp, {shots_text(SHOTS)}", ways, columns),
    ]


def _columns(metrics: Sequence[str], places: Sequence[str] = PLACES) -> list[tuple[str, str]]:
    """Place and metric of each column."""
    return [(place, metric) for place in places for metric in metrics]


def _block(
    recipe: Recipe, title: str, ways: Mapping[str, Way], columns: Sequence[tuple[str, str]]
) -> Block:
    heads = {f"{heading(metric)}, {place}": (place, metric) for place, metric in columns}

    def cell(row: str, head: str) -> Cell:
        return ways[row].cell(recipe, *heads[head])

    return Block.fill(title, list(ways), list(heads), cell)
