"""The paper's tables and their miniatures on the embedded data, by name."""

from __future__ import annotations

from collections.abc import Iterable

from coop_cmp.errors import UserError, closest
from coop_cmp.report.embedded import (
    CALIBRATORS,
    CALIBRATORS_NOTE,
    EMBEDDED,
    PLACES_NOTE,
    embedded_blocks,
)
from coop_cmp.report.embedded import SEEDS as EMBEDDED_SEEDS
from coop_cmp.report.layout import SEEDS, Block, Cell, Table, cell_of, metric_blocks
from coop_cmp.report.paper import AVERAGES, METRIC_NAMES, SOURCE, average_notes, printed_numbers
from coop_cmp.runs.run import DEFAULT_FORM, LAMBDAS, Run, shots_text

TRAINERS = {
    "CLIP": "ZeroshotCLIP",
    "Allmethods": "ZeroshotCLIP",
    "CLIPCMP": "CLIPFT_CMP",
    "CLIP (FT only)": "CLIPFT",
    "CLIP (FT + CMP)": "CLIPFT_CMP",
    "CLIPCalib": "CoOp_ZSPenalty",
    "C-tpt": "CTPT",
    "B-PEFT": "BPEFT",
}
"""Our trainers by the paper's names where they differ."""

ELEVEN = {
    "UCF101": "ucf101",
    "Food101": "food101",
    "Caltech101": "caltech101",
    "Pets": "oxford_pets",
    "Flowers102": "oxford_flowers",
    "ImageNet": "imagenet",
    "Cars": "stanford_cars",
    "Aircraft": "fgvc_aircraft",
    "SUN397": "sun397",
    "DTD": "dtd",
    "EuroSAT": "eurosat",
}
TARGETS = {
    "ImageNet-R": "imagenet_r",
    "ImageNet-S": "imagenet_sketch",
    "ImageNet-A": "imagenet_a",
    "ImageNet-V2": "imagenetv2",
}
COLUMNS: dict[str, tuple[str, ...]] = {
    **{label: (name,) for label, name in (ELEVEN | TARGETS).items()},
    **dict(zip(AVERAGES, (tuple(ELEVEN.values()), tuple(TARGETS.values())), strict=True)),
}
"""Our data sets for each of the paper's column heads."""

TITLES = {
    "calibration_metrics": "Average over the eleven data sets",
    "domain_calibration_metrics": "Domain generalisation from ImageNet",
    "benchmarks_calibration_results": "Against other calibration methods, eleven data sets",
    "benchmarks_domain_calibration_results": "Against other calibration methods, domain shift",
    "calibration_results_resnet50": "Against other calibration methods, domain shift, ResNet-50",
    "fewshot_vertical": "Few shots, average over the eleven data sets",
    "domain_fewshot_full": "Few shots, domain generalisation from ImageNet",
    "all_dataset_calibration": "Every data set",
    "lambda_calibration_results": "The weight of the penalty",
    "cmp_ablation": "Fine-tuning CLIP with and without the penalty",
}

FIGURE = "fig_logitHistogramsIntro"
ALL = TITLES | {FIGURE: "Figure 1: confidences with and without the penalty"} | EMBEDDED

LAMBDA_DATASET = "Flowers102"

NOTES = {
    "lambda_calibration_results": (
        f"The paper does not name the data set; its row for 0.01 equals the {LAMBDA_DATASET} column"
        " of all_dataset_calibration, so it is run there.",
        'Its column "CLIP" cannot be zero-shot CLIP, which has no loss; here it is fine-tuning.',
    ),
    "fewshot_vertical": (
        'The paper\'s "CLIP" changes from 2 shots on; zero-shot CLIP cannot, so ours does not.',
    ),
    "benchmarks_calibration_results": (
        "CLIPCMP is taken to be fine-tuning with the penalty. CLIPCalib has three variants, on any "
        "method; the paper does not say which it ran. Here it is CoOp with the range penalty of "
        "its authors (ZSPenalty, weight 10).",
        "B-PEFT is built for another kind of model; what of ours is inferred is in docs/rivals.md.",
    ),
}
NOTES |= {name: (PLACES_NOTE,) for name in EMBEDDED if name != "embedded_digits"}
NOTES[CALIBRATORS] += (CALIBRATORS_NOTE,)
NOTES[FIGURE] = (
    "The four panels are drawn from these runs by: bash scripts/figures.sh output/cifar10",
)
NOTES["benchmarks_domain_calibration_results"] = NOTES["benchmarks_calibration_results"]
NOTES["calibration_results_resnet50"] = NOTES["benchmarks_calibration_results"]

MCE_NOTE = (
    '"MCE, standard" is the largest gap of a bin, "MCE, weighted" the largest gap times the share '
    "of the images in its bin."
)
PAPER_MCE_NOTE = (
    "The paper's MCE stands beside the weighted one: it is always below the ECE, which the "
    "standard one cannot be."
)


def names() -> list[str]:
    """The names of all tables, and of Figure 1."""
    return list(ALL)


def default_seeds(name: str) -> tuple[int, ...]:
    """Three seeds, as in the paper, but for the embedded tables, which claim something."""
    return EMBEDDED_SEEDS if name in EMBEDDED else SEEDS


def table(name: str, seeds: tuple[int, ...] | None = None) -> Table:
    """Build a table by its name.

    Raises:
        UserError: for an unknown name, with the closest match.
    """
    name = FIGURE if name == "figure1" else name
    if name not in ALL:
        known = ", ".join(ALL)
        raise UserError(f"there is no table {name!r}{closest(name, ALL)} (known: {known})")
    seeds = seeds or default_seeds(name)
    if name in EMBEDDED:
        blocks = embedded_blocks(name, seeds)
    elif name == FIGURE:
        blocks = _figure_blocks(seeds)
    else:
        blocks = _lambda_blocks(seeds) if name.startswith("lambda") else _paper_blocks(name, seeds)
    runs = (runs for block in blocks for row in block.cells for cell in row for runs in cell.runs)
    title = f"{ALL[name]} ({next(runs)[0].backbone})"
    notes = list(NOTES.get(name, ()))
    if any(cell.metric == "weighted_mce" for b in blocks for row in b.cells for cell in row):
        notes += [MCE_NOTE, PAPER_MCE_NOTE] if name in TITLES else [MCE_NOTE]
    if wrong := average_notes(name):
        notes.append(
            f"{len(wrong)} averages printed in the paper are not the mean of its own columns, "
            f"beyond rounding: {'; '.join(wrong)}."
        )
    regime = name == "embedded_regime"
    embedded = name in EMBEDDED and not regime
    return Table(name, title, tuple(blocks), tuple(notes), seeds, holm=embedded, own=regime)


def _with_standard_mce(metrics: Iterable[str]) -> list[str]:
    ours = [METRIC_NAMES[metric] for metric in metrics]
    return [name for m in ours for name in ((m, "mce") if m == "weighted_mce" else (m,))]


def _paper_blocks(name: str, seeds: tuple[int, ...]) -> list[Block]:
    """The blocks of one of the paper's tables: all that its numbers name, in their order."""
    rows = [number for number in printed_numbers() if number.table == name]
    printed = {(f.shots, f.method, f.dataset, METRIC_NAMES[f.metric]): f for f in rows}
    labels = list(dict.fromkeys(f.dataset for f in rows))
    metrics = _with_standard_mce(dict.fromkeys(f.metric for f in rows))
    source = ELEVEN[SOURCE] if "Avg(target)" in labels else ""
    blocks: list[Block] = []
    for shots in dict.fromkeys(f.shots for f in rows):
        methods = list(dict.fromkeys(f.method for f in rows if f.shots == shots))

        def cell(method: str, label: str, metric: str, shots: int = shots) -> Cell:
            paper = printed.get((shots, method, label, metric))
            trainer = TRAINERS.get(method, method)
            run = Run("", trainer, rows[0].backbone, shots, source=source)
            return cell_of(run, COLUMNS[label], metric, seeds, paper)

        blocks += metric_blocks(shots_text(shots), methods, labels, metrics, cell)
    return blocks


def _lambda_blocks(seeds: tuple[int, ...]) -> list[Block]:
    """A row per weight and a column per method, with the paper's numbers."""
    printed = {f.method: f for f in printed_numbers() if f.table == "lambda_calibration_results"}
    labels = {label: (label,) for label in (method.partition("@")[0] for method in printed)}

    def cell(row: str, label: str) -> Cell:
        lam = float(row.split()[1])
        trainer = "CLIPFT_CMP" if label == "CLIP" else label
        run = Run("", trainer, "ViT-B/16", 8, lam=lam, form=DEFAULT_FORM)
        paper = printed[f"{label}@lambda={lam:.3f}"]
        return cell_of(run, COLUMNS[LAMBDA_DATASET], "ece", seeds, paper)

    rows = [f"lambda {lam:g}" for lam in LAMBDAS]
    return [Block.fill(f"8 shots, {LAMBDA_DATASET}, ECE", rows, labels, cell)]


def _figure_blocks(seeds: tuple[int, ...]) -> list[Block]:
    """The two methods whose predictions Figure 1 shows, on CIFAR-10 with 4 shots."""

    def cell(method: str, label: str, metric: str) -> Cell:
        return cell_of(Run("", method, "ViT-B/16", 4), (label,), metric, seeds)

    metrics = ["accuracy", "ece", "ace", "mce"]
    return metric_blocks("4 shots", ["CoOp", "CoOp_CMP"], ["cifar10"], metrics, cell)
