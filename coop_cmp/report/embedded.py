"""The paper's tables in miniature: GlyphCLIP on the digits and their four shifts."""

from __future__ import annotations

from coop_cmp.report.layout import HEADINGS, Block, Cell, Recipe, metric_blocks
from coop_cmp.results.run import LAMBDAS, TEST_TIME, shots_text

METHODS = ("CoOp", "CoCoOp", "ProDA", "MaPLe", "KgCoOp")
TWINS = tuple(f"{name}{twin}" for name in METHODS for twin in ("", "_CMP"))
SHIFTS = ("digits_noise", "digits_blur", "digits_rotate", "digits_invert")
EMBEDDED = {
    "embedded_methods": "Every method with and without the penalty",
    "embedded_fewshot": "The same with fewer shots",
    "embedded_domain": "Domain generalisation: trained on digits, tested on four shifts",
    "embedded_lambda": "The weight of the penalty",
    "embedded_finetuning": "Fine-tuning with and without the penalty",
    "embedded_rivals": "Prompts tuned at test time, and prompts that give evidence",
}


def embedded_blocks(name: str, seeds: tuple[int, ...]) -> list[Block]:
    """The blocks of one of the miniatures."""
    recipe = Recipe("GlyphCLIP", seeds, source="digits")
    if name == "embedded_lambda":
        return [_lambda_block(recipe, metric) for metric in ("accuracy", "gap", "ece")]
    columns: dict[str, tuple[str, ...]] = {"digits": ("digits",)}
    methods, shots = ["ZeroshotCLIP", *TWINS], [8]
    metrics = ["accuracy", "ece", "ace", "weighted_mce", "mce"]
    if name in ("embedded_domain", "embedded_rivals"):
        columns |= {shift.removeprefix("digits_"): (shift,) for shift in SHIFTS}
        columns["mean of shifts"] = SHIFTS
        metrics = ["accuracy", "ece"]
    if name == "embedded_rivals":
        methods = ["ZeroshotCLIP", *TEST_TIME, "CoOp", "BPEFT"]
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


def _lambda_block(recipe: Recipe, metric: str) -> Block:
    """A metric for every weight and method; the first row is the baseline itself."""

    def cell(row: str, method: str) -> Cell:
        if row == "no penalty":
            return recipe.cell(method, ("digits",), 8, metric)
        return recipe.cell(f"{method}_CMP", ("digits",), 8, metric, lam=float(row.split()[1]))

    rows = ["no penalty", *(f"lambda {lam:g}" for lam in LAMBDAS)]
    return Block.fill(f"8 shots, digits, {HEADINGS[metric]}", rows, [*METHODS, "CLIPFT"], cell)
