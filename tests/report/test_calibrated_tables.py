"""Calibrated runs in tables: made from finished runs, and compared with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coop_cmp.cli.calibrate import calibrate_runs
from coop_cmp.losses.names import TERMS
from coop_cmp.report.collect import Collector
from coop_cmp.report.definitions import table
from coop_cmp.report.embedded import POSTHOC
from coop_cmp.report.render import Renderer
from coop_cmp.runs import load
from coop_cmp.runs.pairs import baseline_of
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run, is_zero_shot, with_needs
from tests.made_runs import finish_with

COOP = Run("glyphs", "CoOp", "GlyphCLIP", 1, classes="base")


def test_a_calibrated_run_needs_the_run_its_labels_and_zero_shot_clip():
    new = replace(COOP, classes="new")
    base = replace(COOP, classes="base")
    zero_shot = Run("glyphs", "ZeroshotCLIP", "GlyphCLIP")
    calibrated = replace(new, calibrator="temperature")
    assert with_needs([calibrated]) == [base, new, replace(base, split="val"), calibrated]
    dac = replace(new, calibrator="dac")
    halves = [replace(zero_shot, classes="new"), replace(zero_shot, classes="base")]
    assert with_needs([dac]) == [base, new, *halves, dac]
    assert calibrated.path.parent.name == "GlyphCLIP_1shots_new_temperature"
    assert baseline_of(calibrated) == new


def finish_all(project: Project, seeds: tuple[int, ...]) -> list[Run]:
    """Runs that are sure of themselves at 97 % and right at 75 %; their calibrated twins."""
    random = np.random.default_rng(0)
    runs = []
    for seed in seeds:
        run = replace(COOP, seed=seed)
        for part in ("test", "val"):
            confidence = np.full(400, 0.97)
            names = [f"{part} {i}" for i in range(400)]
            correct = random.random(400) < 0.75
            metrics = {"accuracy": float(correct.mean()), "ece": float(0.97 - correct.mean())}
            finish_with(project, replace(run, split=part), confidence, correct, names, **metrics)
        runs.append(replace(run, calibrator="temperature"))
    return runs


def test_calibrated_runs_are_made_once_and_are_what_the_project_expects(project):
    runs = finish_all(project, (1,))
    assert calibrate_runs(project, runs) == []
    assert project.state(runs[0]).kind == "done"
    written = (project.directory(runs[0]) / "results.json").stat().st_mtime_ns
    assert calibrate_runs(project, runs) == []
    assert (project.directory(runs[0]) / "results.json").stat().st_mtime_ns == written
    frame = load(project.output)
    row = frame[frame["calibrator"] == "temperature"].iloc[0]
    assert row["ece"] < 0.05 < frame[frame["calibrator"] == ""]["ece"].min()
    missing = calibrate_runs(project, [replace(COOP, seed=1, calibrator="sals")])
    assert "needs a test of ZeroshotCLIP" in missing[0]


def test_the_table_shows_the_change_by_a_calibrator_with_its_interval(project):
    runs = finish_all(project, (1, 2, 3))
    calibrate_runs(project, runs)
    one = table("embedded_calibrators")
    values, _ = Collector(project, [one]).values(one, one.holm)
    changed = [
        (cell.metric, value.change)
        for cell, value in values.items()
        if value.change and cell.changed_by == "temperature"
    ]
    assert {metric for metric, _ in changed} == {"accuracy", "ece", "nll"}
    change = dict(changed)
    assert change["ece"].holds
    assert change["ece"].high < -0.1
    assert change["accuracy"].estimate == 0
    text = Renderer(one, values).render()
    assert "by temperature" in text
    assert "n/a" in text, "isotonic regression has nothing to say of new classes"


def test_the_calibrators_table_has_every_term_and_calibrator():
    one = table("embedded_calibrators")
    assert one.holm
    tuned, coop = one.blocks
    assert tuned.rows == ("plain", "TPT", "CTPT", "OTPT")
    assert coop.rows == ("plain", *TERMS, "BPEFT", *POSTHOC)
    trained = [run for run in with_needs(one.runs()) if not run.calibrator and not run.training]
    learned = [run for run in trained if not is_zero_shot(run.trainer)]
    # CoOp, plain and with 13 terms, and B-PEFT; ten seeds
    assert len(learned) == (14 + 1) * 10
