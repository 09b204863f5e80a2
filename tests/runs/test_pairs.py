"""coop_cmp/runs/pairs.py: what a run is compared with, planned and on disk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coop_cmp.report.page.rows import rows_of
from coop_cmp.report.summary import summary
from coop_cmp.runs.frame import find_runs, load
from coop_cmp.runs.pairs import Baselines, baseline_of, change_of
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from tests.made_runs import finish_with, write_run

COOP = Run("digits", "CoOp", "GlyphCLIP", 8)
CMP = replace(COOP, trainer="CoOp_CMP", lam=0.01, form="ratio")
ZERO_SHOT = Run("digits", "ZeroshotCLIP", "GlyphCLIP")
PAIRS = [
    (CMP, COOP, "CMP"),
    (replace(CMP, calibrator="temperature"), COOP, "CMP and temperature"),
    (replace(COOP, calibrator="temperature"), COOP, "temperature"),
    (replace(ZERO_SHOT, trainer="TPT"), ZERO_SHOT, "TPT"),
    (replace(ZERO_SHOT, trainer="CTPT"), ZERO_SHOT, "CTPT"),
    (replace(COOP, trainer="BPEFT"), COOP, "BPEFT"),
    (COOP, None, ""),
    (ZERO_SHOT, None, ""),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    project = Project(tmp_path_factory.mktemp("output"))
    random = np.random.default_rng(0)
    for run in dict.fromkeys([ZERO_SHOT, COOP, *(run for run, *_ in PAIRS)]):
        confidence = random.uniform(0.55, 0.99, 60)
        finish_with(project, run, confidence, random.random(60) < confidence)
    return project


@pytest.mark.parametrize(("run", "expected", "change"), PAIRS, ids=lambda value: str(value))
def test_plans_and_results_are_compared_with_the_same(project, run, expected, change):
    assert baseline_of(run) == expected
    assert change_of(run.trainer, run.calibrator) == change
    rows = {row["directory"]: row for row in load(project.output).to_dict("records")}
    found = Baselines(rows.values()).of(rows[str(project.directory(run))])
    assert (found and found["directory"]) == (expected and str(project.directory(expected)))


def test_tables_and_the_page_name_the_same_changes(project):
    text = summary(load(project.output))
    for change in ("CMP", "temperature", "TPT", "CTPT", "BPEFT"):
        assert f"| by {change} " in text
    rows = rows_of(find_runs(project.output)[0])
    plain = {row.group.title: rows[row.baseline].group.title for row in rows if row.baseline}
    plain |= {row.group.title: rows[0].group.title for row in rows if row.baseline == 0}
    assert plain["TPT"] == plain["CTPT"] == "ZeroshotCLIP"
    assert plain["BPEFT"] == plain["CoOp + temperature"] == plain["CoOp + CMP, λ = 0.01"] == "CoOp"


def test_of_several_baselines_the_most_similar_is_taken(tmp_path):
    logits, labels = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 3
    for name, rate in (("a", 0.1), ("b", 0.2)):
        settings = {"OPTIM.LR": rate, "TRAINER.COOP.N_CTX": 4}
        write_run(tmp_path / name, settings, logits, labels, "xyz")
    settings = {"TRAINER.NAME": "BPEFT", "OPTIM.LR": 0.2, "TRAINER.BPEFT.SAMPLES": 3}
    write_run(tmp_path / "c", settings, logits, labels, "xyz")
    write_run(tmp_path / "d", {**settings, "DATASET.NUM_SHOTS": 1}, logits, labels, "xyz")
    a, b, c, d = load(tmp_path).to_dict("records")
    baselines = Baselines([a, b, c, d])
    assert baselines.of(c) is b
    assert baselines.of(d) is None, "CoOp was not trained on one shot"


def test_what_cannot_be_compared_says_why_and_nothing_is_not_marked(tmp_path):
    logits, labels = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 3
    for seed in (1, 2, 3):
        for name in ("CoOp", "CoOp_CMP"):
            settings = {"TRAINER.NAME": name, "SEED": seed}
            write_run(tmp_path / f"{name}{seed}", settings, logits, labels, "xyz")
    (line,) = [line for line in summary(load(tmp_path)).splitlines() if "by CMP" in line]
    assert line.count("+0.00 (+0.00 to +0.00)") == 4
    assert "*" not in line
    other = [str(name) for name in range(100, 120)]
    write_run(tmp_path / "CoOp_CMP1", {**settings, "SEED": 1}, logits, labels, "xyz", names=other)
    assert "not the same images" in summary(load(tmp_path))
