"""The paper's tables, from synthetic runs whose means and marks were worked out by hand."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from coop_cmp.errors import UserError
from coop_cmp.report.collect import Collector, Value
from coop_cmp.report.definitions import TITLES, names, table
from coop_cmp.report.embedded import EMBEDDED, WEIGHTS
from coop_cmp.report.paper import average_notes, printed_numbers
from coop_cmp.report.render import Renderer
from coop_cmp.runs import read_results, stored
from coop_cmp.runs.compare import Difference, holm
from coop_cmp.runs.project import Project
from coop_cmp.runs.records import write_results
from coop_cmp.runs.run import Run
from tests.commands import command
from tests.made_runs import finish, finish_with

main = command("tables")

PAPER_SHA256 = "7601a7e897aefe5e4a98fc704a2c0ada8bb644a17263f9910b3749d69f227b71"
REPOSITORY = Path(__file__).resolve().parents[2]


def write_run(project: Project, run: Run, **metrics: float) -> None:
    """Results with these metrics, in percent; all others are 50 %."""
    finish(project, run, **{name: value / 100 for name, value in metrics.items()})


def runs_of(name: str, trainer: str, dataset: str) -> list[Run]:
    return [r for r in table(name).runs() if (r.trainer, r.dataset) == (trainer, dataset)]


def show(project: Project, name: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    words = ["show", name, "--output", str(project.output), *more]
    assert main(words) == 0
    return capsys.readouterr().out


def lines_of(text: str, label: str, block: str) -> dict[str, list[str]]:
    """The lines of one row of a text table by their kind, as lists of filled cells."""
    lines = [re.split(r"\s{2,}", line) for line in text.split(block, 1)[1].splitlines()]
    start = next(i for i, line in enumerate(lines) if line[:2] == [label, "ours"])
    found = {"ours": lines[start][2:]}
    for line in lines[start + 1 :]:
        if line[0] or len(line) < 2:
            break
        found[line[1]] = line[2:]
    return found


def test_every_figure_of_the_paper_is_in_the_package():
    assert len(printed_numbers()) == 1532
    assert len(set(printed_numbers())) == 1532
    packaged = files("coop_cmp.report").joinpath("paper.csv").read_bytes()
    assert sha256(packaged).hexdigest() == PAPER_SHA256
    assert {f.table for f in printed_numbers()} == set(TITLES)


@pytest.mark.parametrize(
    ("name", "shots", "method", "dataset", "metric", "printed"),
    [
        ("benchmarks_calibration_results", 8, "CLIP", "UCF101", "acc", "58.9"),
        ("benchmarks_calibration_results", 8, "CLIP", "UCF101", "ece", "3.57"),
        ("benchmarks_calibration_results", 8, "CLIPCMP", "EuroSAT", "acc", "25.4"),
        ("benchmarks_calibration_results", 8, "CLIPCMP", "EuroSAT", "ece", "3.17"),
        ("lambda_calibration_results", 8, "ProDA_CMP@lambda=0.100", "unstated", "ece", "6.35"),
    ],
)
def test_figures_read_off_the_paper_by_hand(name, shots, method, dataset, metric, printed):
    labels = (name, shots, method, dataset, metric)
    found = [
        f for f in printed_numbers() if (f.table, f.shots, f.method, f.dataset, f.metric) == labels
    ]
    assert [f.text for f in found] == [printed]


@pytest.mark.parametrize("name", [*TITLES, "figure1"])
def test_every_table_shows_all_of_the_papers_figures_exactly_once(name):
    shown = [cell.paper for cell in table(name).cells() if cell.paper]
    assert len(shown) == len(set(shown)) == sum(f.table == name for f in printed_numbers())


def test_averages_that_the_paper_prints_wrongly_are_named():
    notes = average_notes("domain_calibration_metrics")
    # 70.5, 47.1, 48.8, 61.5; 7.83, 14.6, 6.77, 2.98; 3.66, 5.78, 13.5, 2.01
    assert notes == [
        "acc of CLIP: printed 57.2, mean of its columns 56.98",
        "ece of CoOp: printed 8.01, mean of its columns 8.04",
        "ece of MaPLe: printed 6.48, mean of its columns 6.24",
    ]
    assert average_notes("fewshot_vertical") == [], "it has no columns to compare with"
    assert average_notes("calibration_metrics") == average_notes("all_dataset_calibration") != []


def test_a_domain_table_trains_on_the_source_and_tests_everywhere():
    runs = table("domain_calibration_metrics", (1,)).runs()
    coop = [r for r in runs if r.trainer == "CoOp_CMP"]
    assert [(r.dataset, r.source) for r in coop] == [
        ("imagenet", ""),
        ("imagenet_r", "imagenet"),
        ("imagenet_sketch", "imagenet"),
        ("imagenet_a", "imagenet"),
        ("imagenetv2", "imagenet"),
    ]
    zero_shot = [r for r in runs if r.trainer == "ZeroshotCLIP"]
    assert len(zero_shot) == 5
    assert not any(r.source for r in zero_shot)


def test_the_lambda_table_runs_six_weights_of_six_methods_and_their_baselines():
    runs = table("lambda_calibration_results", (1,)).runs()
    assert len(runs) == 6 * 6 + 6
    assert {r.dataset for r in runs} == {"oxford_flowers"}


def test_an_empty_output_gives_the_papers_figures_and_a_command_for_every_cell(project, capsys):
    text = show(project, "domain_calibration_metrics", capsys)
    lines = lines_of(text, "CoOp_CMP", "8 shots, ECE")
    assert lines["paper"] == ["1.55", "6.91", "13.9", "6.35", "2.13", "7.32"]
    assert set(lines["ours"]) == {"[3]"}
    assert "[3] bash scripts/tables.sh run domain_calibration_metrics --trainers CoOp_CMP" in text
    numbers = {f"[{n}]" for n in range(1, 12)}
    assert all(f"\n{number} bash" in text for number in numbers)
    assert "ece of MaPLe: printed 6.48" in text.replace("\n   ", "")


def test_commands_name_seeds_that_are_not_the_default(project, capsys):
    text = show(project, "cmp_ablation", capsys, "--seeds", "4", "5")
    command = "bash scripts/tables.sh run cmp_ablation"
    assert f"[1] {command} --trainers CLIPFT --seeds 4 5\n" in text
    assert f"all: {command} --seeds 4 5\n" in text
    assert "--seeds" not in show(project, "cmp_ablation", capsys)


def commands_of(text: str) -> dict[str, str]:
    """The numbers of the listed commands by the trainer that they run."""
    return {trainer: n for n, trainer in re.findall(r"(\[\d+\]) bash.* --trainers (\S+)", text)}


def test_a_baseline_without_a_row_of_its_own_gets_a_command(project, capsys):
    name, title = "lambda_calibration_results", "8 shots, Flowers102, ECE"
    empty = commands_of(show(project, name, capsys))
    assert {"CoOp", "CoOp_CMP", "CLIPFT", "CLIPFT_CMP"} < set(empty)
    for run in runs_of(name, "CoOp_CMP", "oxford_flowers"):
        write_run(project, run, ece=5)
    text = show(project, name, capsys)
    commands = commands_of(text)
    assert "CoOp_CMP" not in commands
    lines = lines_of(text, "lambda 0.01", title)
    assert "5.00 ± 0.00" in lines["ours"], "the twin's own figure needs no baseline"
    assert lines["by CMP"] == [commands["CoOp"]]
    for run in runs_of(name, "CoOp", "oxford_flowers"):
        write_run(project, run, ece=6)
    text = show(project, name, capsys)
    assert "CoOp" not in commands_of(text)
    assert lines_of(text, "lambda 0.01", title)["by CMP"] == ["-1.00"]


@pytest.mark.parametrize("name", [name for name in TITLES if "benchmarks" in name or "50" in name])
def test_the_listed_commands_cover_all_runs_of_a_table(project, capsys, name):
    assert set(commands_of(show(project, name, capsys))) == {r.trainer for r in table(name).runs()}


def test_means_deviations_averages_and_differences_are_right(project, capsys):
    # ECE of CoOp on R, S, A, V2 is 8, 14, 6, 4 plus 0, 1, 2 over seeds: averages 8, 9, 10
    for dataset, base in zip(
        ("imagenet_r", "imagenet_sketch", "imagenet_a", "imagenetv2"), (8, 14, 6, 4), strict=True
    ):
        for run in runs_of("domain_calibration_metrics", "CoOp", dataset):
            write_run(project, run, ece=base + run.seed - 1)
    text = show(project, "domain_calibration_metrics", capsys)
    lines = lines_of(text, "CoOp", "8 shots, ECE")
    assert lines["ours"] == [
        "[2]", "9.00 ± 1.00", "15.00 ± 1.00", "7.00 ± 1.00", "5.00 ± 1.00", "9.00 ± 1.00",
    ]  # fmt: skip
    # against 7.83, 14.6, 6.77, 2.98 and 8.01
    assert lines["difference"] == ["+1.17", "+0.40", "+0.23", "+2.02", "+0.99"]


def test_an_average_waits_for_all_of_its_data_sets(project):
    for run in runs_of("domain_calibration_metrics", "CoOp", "imagenet_r"):
        write_run(project, run, ece=8)
    one = table("domain_calibration_metrics")
    average = next(
        c for c in one.cells() if c.trainer == "CoOp" and len(c.runs) == 4 and c.metric == "ece"
    )
    value = Collector(project, [one]).values(one)[0][average]
    assert value.by_seed == {}
    assert len(value.missing) == 9


def test_two_readings_of_mce_stand_side_by_side(project, capsys):
    for run in runs_of("cmp_ablation", "CLIPFT", "imagenet"):
        write_run(project, run, weighted_mce=2, mce=20)
    lines = lines_of(show(project, "cmp_ablation", capsys), "CLIP (FT only)", "8 shots")
    assert lines["ours"][-2:] == ["2.00 ± 0.00", "20.00 ± 0.00"]
    assert lines["difference"][-1] == "+0.11"


def comparison(
    project: Project, ours: list[float], theirs: list[float], size: int = 1000
) -> dict[str, Value]:
    """Twin and baseline on the same images: right with the given rates, per seed, at 90 %."""
    rank = np.random.default_rng(3).permutation(size) / size
    for trainer, rates in (("CLIPFT_CMP", ours), ("CLIPFT", theirs)):
        for run, rate in zip(runs_of("cmp_ablation", trainer, "imagenet"), rates, strict=True):
            metrics = {"accuracy": rate, "ece": abs(0.9 - rate)}
            finish_with(project, run, np.full(size, 0.9), rank < rate, **metrics)
    one = table("cmp_ablation")
    values, _ = Collector(project, [one]).values(one)
    return {c.metric: v for c, v in values.items() if c.trainer == "CLIPFT_CMP"}


def test_a_difference_that_images_and_seeds_agree_on_is_marked(project, capsys):
    values = comparison(project, [0.84, 0.85, 0.86], [0.80, 0.80, 0.81])
    change = values["accuracy"].change
    assert change.estimate == pytest.approx(0.14 / 3)
    assert 0 < change.low < change.estimate < change.high
    assert change.holds
    assert values["ece"].change.holds
    assert "+4.67 *" in show(project, "cmp_ablation", capsys)
    assert "**+4.67**" in show(project, "cmp_ablation", capsys, "--format", "markdown")
    latex = show(project, "cmp_ablation", capsys, "--format", "latex")
    assert "\\textbf{+4.67}" in latex
    assert latex.index("\\toprule") < latex.index("\\midrule") < latex.index("\\bottomrule")
    assert "hline" not in latex
    assert "bash" not in latex


@pytest.mark.parametrize(
    ("ours", "theirs", "size", "change"),
    [
        ([0.86, 0.86, 0.80], [0.80, 0.80, 0.81], 1000, 0.11 / 3),  # one seed denies it
        # one image in two hundred: positive for every seed, yet half of the resamples lack it
        ([0.805] * 3, [0.8] * 3, 200, 0.005),
    ],
)
def test_a_difference_within_chance_stays_plain(project, capsys, ours, theirs, size, change):
    found = comparison(project, ours, theirs, size)["accuracy"].change
    assert found.estimate == pytest.approx(change)
    assert not found.holds
    assert f"{100 * change:+.2f} *" not in show(project, "cmp_ablation", capsys)


def test_a_difference_that_rounds_to_nothing_stays_plain():
    one = table("cmp_ablation")
    sure = Difference(-0.00004, -0.000049, -0.00003, p=0.001, seeds=3)
    values = {cell: Value({1: 0.05}, change=sure) for cell in one.cells()}
    text = Renderer(one, values).render().split("Percent")[0].replace("-0.00 to -0.00", "")
    assert " 0.00" in text
    assert "-0.00" not in text
    assert "*" not in text


def test_methods_tested_on_different_images_are_not_compared(project, capsys):
    comparison(project, [0.9] * 3, [0.8] * 3)
    run = runs_of("cmp_ablation", "CLIPFT", "imagenet")[0]
    finish_with(project, run, np.full(50, 0.9), np.ones(50, dtype=bool), accuracy=0.8)
    text = show(project, "cmp_ablation", capsys)
    assert "not tested on the same images" in text.replace("\n    ", " ")
    assert "*" not in text.split("Percent")[0]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text.replace('"schema": 2', '"schema": 3'), "schema 3 is unknown"),
        (lambda text: text.replace('"ece": 0.5', '"ece": NaN'), "metrics.ece is nan"),
        (lambda text: text[:30], "not a JSON file"),
        (lambda text: text.replace('"SEED": 1', '"SEED": 7'), "were changed by hand"),
    ],
)
def test_results_that_cannot_be_trusted_stay_out_and_are_named(project, capsys, damage, reason):
    for run in runs_of("cmp_ablation", "CLIPFT", "imagenet"):
        write_run(project, run, accuracy=80 + run.seed)
    file = project.directory(runs_of("cmp_ablation", "CLIPFT", "imagenet")[0]) / "results.json"
    file.write_text(damage(file.read_text()))
    text = show(project, "cmp_ablation", capsys)
    assert lines_of(text, "CLIP (FT only)", "8 shots")["ours"][0] == "82.50 ± 0.71 [1]"
    plain = text.replace("\n    ", " ")
    assert str(file) in plain
    assert reason in plain


def test_results_from_different_weights_are_pointed_out(project, capsys):
    runs = runs_of("cmp_ablation", "CLIPFT", "imagenet")
    for run in runs:
        write_run(project, run)
    file = project.directory(runs[0]) / "results.json"
    write_results(file, read_results(file) | {"weights": {"name": "laion2b", "digest": "1"}})
    text = show(project, "cmp_ablation", capsys)
    assert "Warning: the ViT-B/16 runs do not share their weights: laion2b, openai" in text


def test_csv_has_one_line_per_cell(project, capsys):
    for run in runs_of("cmp_ablation", "CLIPFT", "imagenet"):
        write_run(project, run, accuracy=80 + run.seed)
    text = show(project, "cmp_ablation", capsys, "--format", "csv")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 10
    first = rows[0]
    assert (first["paper"], first["ours"], first["deviation"]) == ("82.3", "82.0000", "1.0000")
    assert (first["seeds"], first["difference"], first["change"]) == ("3", "-0.30", "")


def test_csv_of_several_tables_is_one_file_and_its_warnings_go_elsewhere(project, capsys):
    refused = runs_of("cmp_ablation", "CLIPFT", "imagenet")[0]
    finish(project, replace(refused, options=(("TEST.N_BINS", "15"),)))
    file = project.directory(refused)
    places = ["--output", str(project.output)]
    assert main(["show", "cmp_ablation", "figure1", "--format", "csv", *places]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(out.splitlines()))
    assert len(rows) == len(out.splitlines()) - 1, "no blank lines"
    tables = [row["table"] for row in rows]
    assert tables == ["cmp_ablation"] * 10 + ["fig_logitHistogramsIntro"] * 8
    assert "N_BINS" not in out
    assert err.count(f"Warning: {file} holds a run with other settings: TEST.N_BINS is 15") == 1


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        # 11 zero-shot runs and 11 data sets x 3 seeds
        ("calibration_metrics --trainers ZeroshotCLIP CoOp", 44),
        ("fewshot_vertical --trainers ZeroshotCLIP --shots 1", 11),
        ("all", 2237),  # docs/reproduce.md says so
    ],
)
def test_a_dry_run_counts_the_runs_of_tables(project, capsys, words, runs):
    assert main(["run", *words.split(), "--dry-run", "--output", str(project.output)]) == 0
    text = capsys.readouterr().out
    assert f"{runs} runs, {runs} to do" in text
    assert ("cifar10/CoOp_CMP" in text) == (words == "all"), "Figure 1 is among all"


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (["--trainers", "CLIPFT", "Nope"], r"--trainers: Nope is not in cmp_ablation.*CLIPFT_CMP"),
        (["--datasets", "imagnet"], r'--datasets: imagnet .* did you mean "imagenet"'),
        (["--shots", "8", "3"], r"--shots: 3 is not in cmp_ablation \(known: 8\)"),
    ],
)
def test_a_filter_that_names_nothing_of_the_table_is_refused(project, filters, message):
    words = ["run", "cmp_ablation", "--output", str(project.output)]
    with pytest.raises(UserError, match=message):
        main([*words, *filters])


def test_filters_that_leave_nothing_together_are_refused(project):
    words = ["run", "cmp_ablation", "figure1", "--trainers", "CLIPFT", "--datasets", "cifar10"]
    with pytest.raises(UserError, match="together leave no run of cmp_ablation, figure1"):
        main([*words, "--output", str(project.output)])


def test_the_embedded_tables_cover_shots_weights_forms_and_places():
    runs = [run for name in EMBEDDED for run in table(name).runs()]
    assert all(len(table(name).seeds) == 10 for name in EMBEDDED), "claims rest on ten seeds"
    assert all(table(name).holm == (name != "embedded_regime") for name in EMBEDDED)
    assert {run.backbone for run in runs} == {"GlyphCLIP"}
    assert {run.shots for run in runs} == {0, 1, 2, 4, 8, 16}
    weights = {form: {run.lam for run in runs if run.form == form} for form in ("ratio", "log")}
    assert weights == {form: set(WEIGHTS[form]) for form in WEIGHTS}
    assert {run.source for run in runs if run.dataset == "glyphs_blur"} == {"", "glyphs"}
    assert {run.classes for run in runs if run.dataset == "glyphs"} == {"base", "new"}
    trained = {run.trainer for run in table("embedded_digits").runs()}
    methods = ("CoOp", "CoCoOp", "ProDA", "MaPLe", "KgCoOp", "CLIPFT")
    assert trained == {"ZeroshotCLIP", *methods, *(f"{name}_CMP" for name in methods)}


def test_the_regime_shows_intervals_of_its_values_and_what_training_fitted(project, capsys):
    random = np.random.default_rng(0)
    one = table("embedded_regime", (1, 2))
    for run in one.runs():
        confidence = random.uniform(0.55, 0.99, 50)
        folder = finish_with(project, run, confidence, random.random(50) < confidence - 0.3)
        record = read_results(folder / "results.json")
        record["fit"] = {"accuracy": 0.98, "wrong": 0.04}
        write_results(folder / "results.json", record)
    text = show(project, one.name, capsys, "--seeds", "1", "2")
    lines = lines_of(text, "1 shot", "CoOp, shared context")
    assert lines["ours"][:2] == ["98.00 ± 0.00", "4.00 ± 0.00"]
    assert len(lines["95 %"]) == 9, "not of what was measured in training"
    assert all(" to " in ends for ends in lines["95 %"])
    assert '"95 %" is the interval of the mean' in " ".join(text.split())


def test_the_list_names_the_tables_and_an_unknown_one_is_refused(capsys):
    with pytest.raises(UserError, match='did you mean "fewshot_vertical"'):
        table("fewshot_vertcal")
    assert main(["list"]) == 0
    listed = capsys.readouterr().out.split()
    assert listed == names()
    assert {*TITLES, "fig_logitHistogramsIntro"} < set(listed)
    assert len(TITLES) == 10


def test_every_table_can_be_rendered_in_every_format(project):
    for name in names():
        one = table(name)
        values, problems = Collector(project, [one]).values(one)
        for form in ("text", "markdown", "latex", "csv"):
            assert json.dumps(Renderer(one, values, problems, form).render())


def test_holm_takes_the_comparisons_of_a_column_together(project, capsys):
    random = np.random.default_rng(0)
    one = table("embedded_methods", (1, 2, 3))
    for run in one.runs():
        confidence = random.uniform(0.55, 0.99, 100)
        correct = random.random(100) < confidence - 0.2 * run.trainer.endswith("_CMP")
        finish_with(project, run, confidence, correct)
    collector = Collector(project, [one])
    plain, family = (collector.values(one, holm)[0] for holm in (False, True))
    for column in one.columns():
        cells = [cell for cell in column if plain[cell].change]
        assert len(cells) == 5
        changes = [plain[cell].change for cell in cells]
        alone = [c.family_p for c in changes]
        assert [family[cell].change.p for cell in cells] == holm(alone)
        assert [family[cell].change.low for cell in cells] == [c.low for c in changes]
    legend = show(project, one.name, capsys, "--seeds", "1", "2", "3").replace("\n    ", " ")
    assert "Holm-corrected over each column of a block" in legend
    assert "2 degrees of freedom (3 seeds); so few seeds can show next to nothing" in legend


def test_a_legend_names_the_units_of_its_table(project, capsys):
    assert "Percent, NLL in nats;" in show(project, "embedded_digits", capsys)
    assert "Percent;" in show(project, "embedded_methods", capsys)


def test_runs_that_several_tables_share_are_read_once(project, capsys, monkeypatch):
    comparison(project, [0.84, 0.85, 0.86], [0.80, 0.80, 0.81])
    read: list[Path] = []
    plain = stored.read_outcomes
    monkeypatch.setattr(
        stored, "read_outcomes", lambda *given: read.append(given[0]) or plain(*given)
    )
    words = ["--output", str(project.output)]
    assert main(["show", "cmp_ablation", "cmp_ablation", *words]) == 0
    assert len(set(read)) == 6
    assert len(read) == 12, "each is checked once and measured once"


def test_notes_and_what_the_term_did_in_training_stand_below_the_table(project, capsys):
    one = table("cmp_ablation")
    for run in one.runs():
        folder = finish(project, run)
        record = read_results(folder / "results.json")
        if run.trainer == "CLIPFT_CMP":
            record["fit"] = {"accuracy": 0.998, "wrong": 0.01 * run.seed, "gradient": 0.0031}
            record["notes"] = ["training never made a mistake"]
        write_results(folder / "results.json", record)
    text = show(project, one.name, capsys, "--no-intervals")
    lines = lines_of(text, "CLIP (FT + CMP)", "8 shots, ImageNet")
    assert lines["in training"] == ["99.80 / 2.00 / 0.31"], "once for all metrics"
    assert "training never made a mistake (3 runs)" in text
    assert '"in training": accuracy' in text
