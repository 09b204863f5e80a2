"""Tables of the embedded model and data: its regime, and the penalty and its rivals in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from coop_cmp.losses.names import TERMS, twin_of
from coop_cmp.report.layout import Block, Cell, cell_of, heading, metric_blocks
from coop_cmp.runs.run import TEST_TIME, Run, shots_text

SEEDS = tuple(range(1, 11))  # where something is claimed
SHOTS = 1  # where CoOp fits its shots; of all tables but that of the regime
METHODS = ("CoOp", "ProDA", "MaPLe", "KgCoOp", "CLIPFT")  # CoCoOp takes long on many classes
SHIFTS = ("noise", "blur", "rotate", "invert")
PLACES = ("seen", "new", "shifts")
BASE = Run("glyphs", "CoOp", "GlyphCLIP", SHOTS, source="glyphs", classes="base")
OWN = replace(BASE, options=(("TRAINER.COOP.CSC", "True"),), tag="csc")  # a context per class
ZERO_SHOT = replace(BASE, trainer="ZeroshotCLIP")
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
    if name == "embedded_regime":
        return _regime_blocks(seeds)
    if name == "embedded_lambda":
        return [_lambda_block(seeds, run, form) for run in (BASE, OWN) for form in WEIGHTS]
    if name == CALIBRATORS:
        return _calibrators_blocks(seeds)
    if name == "embedded_digits":
        rows = _with_twins((*METHODS, "CoCoOp"))

        def cell(method: str, label: str, metric: str) -> Cell:
            return cell_of(Run("", method, "GlyphCLIP", 8), (label,), metric, seeds)

        return metric_blocks("8 shots", rows, ["digits"], ["accuracy", "gap", "ece", "nll"], cell)
    ways = {method: replace(BASE, trainer=method) for method in _with_twins(METHODS)}
    return [_block(seeds, shots_text(SHOTS), ways, _columns(("accuracy", "gap", "ece")))]


def _with_twins(methods: Sequence[str]) -> list[str]:
    return ["ZeroshotCLIP", *(m for method in methods for m in (method, twin_of(method)))]


def _regime_blocks(seeds: tuple[int, ...]) -> list[Block]:
    """How CoOp fits and generalises for each number of shots, with either kind of context."""
    fit = _columns(("fit.accuracy", "fit.wrong"), ("seen",))
    columns = [*fit, *_columns(("accuracy", "gap", "ece"))]
    blocks = []
    for run in (BASE, OWN):
        ways = {"zero-shot": ZERO_SHOT} if run is BASE else {}
        ways |= {shots_text(shots): replace(run, shots=shots) for shots in (1, 2, 4, 8, 16)}
        blocks.append(_block(seeds, f"CoOp, {_context(run)}", ways, columns))
    return blocks


def _lambda_block(seeds: tuple[int, ...], run: Run, form: str) -> Block:
    """CoOp with every weight; the first row is CoOp itself."""
    ways = {"no penalty": run}
    for lam in WEIGHTS[form]:
        ways[f"lambda {lam:g}"] = replace(run, trainer="CoOp_CMP", lam=lam, form=form)
    columns = _columns(("accuracy", "gap", "ece"), ("seen",) if run is OWN else ("seen", "new"))
    title = f"CoOp, {_context(run)}, {shots_text(SHOTS)}, form {form}"
    return _block(seeds, title, ways, columns)


def _context(run: Run) -> str:
    return f"{'own' if run is OWN else 'shared'} context"


def _calibrators_blocks(seeds: tuple[int, ...]) -> list[Block]:
    """Zero-shot CLIP and CoOp, each with all that can be done about it."""
    tuned = {"plain": ZERO_SHOT} | {name: replace(BASE, trainer=name) for name in TEST_TIME}
    ways = {"plain": BASE} | {t: replace(BASE, trainer=twin_of("CoOp", t)) for t in TERMS}
    ways["BPEFT"] = replace(BASE, trainer="BPEFT")
    ways |= {name: replace(BASE, calibrator=name) for name in POSTHOC}
    columns = _columns(("accuracy", "ece", "nll"), ("seen", "new"))
    return [
        _block(seeds, "Prompts tuned at test time", tuned, columns),
        _block(seeds, f"CoOp, {shots_text(SHOTS)}", ways, columns),
    ]


def _columns(metrics: Sequence[str], places: Sequence[str] = PLACES) -> list[tuple[str, str]]:
    """Place and metric of each column."""
    return [(place, metric) for place in places for metric in metrics]


def _block(
    seeds: tuple[int, ...], title: str, ways: Mapping[str, Run], columns: Sequence[tuple[str, str]]
) -> Block:
    """The runs of the glyphs in each way: on seen classes, on new ones, or under the shifts."""
    heads = {f"{heading(metric)}, {place}": (place, metric) for place, metric in columns}

    def cell(row: str, place: str, metric: str) -> Cell:
        run = ways[row]
        # Zero-shot CLIP learns nothing, values for each class have nothing to say of new ones,
        # and DAC is for new ones alone.
        untrained = run.trainer == "ZeroshotCLIP" and metric.startswith("fit.")
        of_seen = run.tag == OWN.tag or run.calibrator in FITTED
        if untrained or (of_seen if place == "new" else run.calibrator == "dac"):
            return Cell((), metric)
        names = [f"glyphs_{shift}" for shift in SHIFTS] if place == "shifts" else ["glyphs"]
        here = replace(run, classes="new") if place == "new" else run
        return cell_of(here, names, metric, seeds)

    return Block.fill(title, list(ways), heads, cell)
