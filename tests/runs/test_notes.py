"""coop_cmp/runs/notes.py: what a reader must know, in frames and tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coop_cmp.report.page.records import records
from coop_cmp.report.page.rows import rows_of
from coop_cmp.report.summary import summary
from coop_cmp.runs import load
from coop_cmp.runs.frame import find_runs
from coop_cmp.runs.notes import BELOW_ZERO_SHOT, COLLAPSED, Note, notes
from coop_cmp.runs.project import Project
from coop_cmp.runs.records import write_results
from coop_cmp.runs.run import Run
from tests.commands import command
from tests.made_runs import finish, record_of

COOP = Run("digits", "CoOp", "GlyphCLIP", 1)
ZERO_SHOT = Run("digits", "ZeroshotCLIP", "GlyphCLIP")
SHORT = "10 of 10 classes have fewer training images than the 200 shots, the smallest 40"


def finished(project: Project, run: Run, accuracy: float, *stored: str, **fields) -> str:
    folder = finish(project, run, accuracy=accuracy)
    record = record_of(project.identity(run), metrics={"accuracy": accuracy}, **fields)
    write_results(folder / "results.json", {**record, "notes": list(stored)})
    return folder.relative_to(project.output).as_posix()


def test_notes_of_several_runs_are_one_with_a_count(project):
    names = [finished(project, replace(COOP, seed=s), 0.8, SHORT, "once; or so") for s in (1, 2)]
    finished(project, replace(COOP, seed=3), 0.8)
    assert notes(load(project.output)["notes"]) == [
        Note(SHORT, tuple(names)),
        Note("once, or so", tuple(names)),
    ]
    assert summary(load(project.output)).count(f"Note: {SHORT} (2 runs)") == 1


@pytest.mark.parametrize(
    ("accuracies", "zero_shot", "expected"),
    [
        ((0.76, 0.198, 0.78), None, [(COLLAPSED, 2)]),
        ((0.76, 0.58, 0.78), None, []),
        ((0.2,), None, []),
        ((0.6, 0.69, 0.71), 0.7, [(BELOW_ZERO_SHOT, 1), (BELOW_ZERO_SHOT, 2)]),
        ((0.7, 0.7, 0.7), 0.7, []),
        ((0.9, 0.9, 0.3), 0.7, [(COLLAPSED, 3), (BELOW_ZERO_SHOT, 3)]),
    ],
)
def test_a_run_that_collapsed_is_told(project, accuracies, zero_shot, expected):
    for seed, accuracy in enumerate(accuracies, 1):
        finished(project, replace(COOP, seed=seed), accuracy)
    if zero_shot:
        finished(project, ZERO_SHOT, zero_shot)
    told = [
        (note.text, name) for note in notes(load(project.output)["notes"]) for name in note.runs
    ]
    places = {seed: str(replace(COOP, seed=seed)) for seed in (1, 2, 3)}
    assert told == [(text, places[seed]) for text, seed in expected]
    rows = rows_of(find_runs(project.output)[0], intervals=False)
    runs = [run for row in rows for run in records(row)["runs"] if row.group.row["trainable"]]
    assert {run["seed"]: run["notes"] for run in runs if run["notes"]} == {
        seed: "; ".join(text for text, other in expected if other == seed) for _, seed in expected
    }


def test_what_was_learned_elsewhere_need_not_beat_zero_shot_clip(project):
    finished(project, replace(COOP, dataset="digits_blur", source="digits"), 0.3)
    finished(project, replace(ZERO_SHOT, dataset="digits_blur"), 0.5)
    assert notes(load(project.output)["notes"]) == []


def test_the_command_prints_notes(project, capsys):
    name = finished(project, COOP, 0.8, SHORT)
    assert command("results")([str(project.output)]) == 0
    assert f"Note: {SHORT} ({name})\n" in capsys.readouterr().out


def test_what_the_term_did_in_training_stands_beside_its_change(project):
    fit = {"accuracy": 0.998, "wrong": 0.02, "gradient": 0.0031}
    cmp = replace(COOP, trainer="CoOp_CMP", lam=0.01, form="ratio")
    for seed in (1, 2):
        finished(project, replace(COOP, seed=seed), 0.8, fit={"accuracy": 0.97, "wrong": 0.03})
        share = {**fit, "wrong": 0.01 * seed}
        finished(project, replace(cmp, seed=seed), 0.8, fit=share)
    head, _, *lines = summary(load(project.output)).splitlines()
    assert head.split("|")[-4:-1] == [" training Acc   ", " wrong in training   ", " gradient   "]
    (line,) = [line for line in lines if line.startswith("| by CMP")]
    assert [cell.strip() for cell in line.split("|")[-4:-1]] == ["99.80", "1.50", "0.31"]
    rows = {line.split("|")[1].strip(): line.split("|")[-4:-1] for line in lines if "|" in line}
    assert [cell.strip() for cell in rows["CoOp"]] == ["97.00", "3.00", "-"], "a plain method's own"
    assert [cell.strip() for cell in rows["CoOp_CMP"]] == ["", "", ""]
