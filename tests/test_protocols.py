"""coop_cmp/sweep/protocols.py: which run tests which, and the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from coop_cmp.errors import UserError
from coop_cmp.results import REQUIRED_METRICS, write_results
from coop_cmp.sweep.grid import Run
from coop_cmp.sweep.project import Project
from coop_cmp.sweep.protocols import elsewhere, halves, main, published_settings
from tests.conftest import ROOT

COOP = Run("digits", "CoOp", "GlyphCLIP", shots=8)
ZERO_SHOT = Run("digits", "ZeroshotCLIP", "GlyphCLIP")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(ROOT, tmp_path)


def finish(project: Project, run: Run, accuracy: float) -> None:
    """Write the results of a run as if it were done."""
    folder = project.directory(run)
    folder.mkdir(parents=True)
    record = {
        "trainer": run.trainer,
        "dataset": project.dataset_names[run.dataset],
        "backbone": run.backbone,
        "weights": "",
        "shots": run.shots,
        "seed": run.seed,
        "subsample": run.classes,
        "lambda": run.lam,
        "form": run.form,
        "split": "test",
        "metrics": {**dict.fromkeys(REQUIRED_METRICS, 0.25), "accuracy": accuracy},
        "bins": {},
        "sizes": {},
        "seconds": {"total": 1.0},
        "versions": {},
        "notes": [],
    }
    write_results(folder / "results.json", record)


def test_new_classes_are_tested_with_what_the_base_classes_taught(project):
    tests = halves(COOP)
    assert tests["base"].training is None
    assert tests["new"].training == tests["base"]
    command = project.command(tests["new"])
    assert command[command.index("--model-dir") + 1] == str(project.directory(tests["base"]))
    assert command[-2:] == ["DATASET.SUBSAMPLE_CLASSES", "new"]
    assert "--eval-only" not in project.command(tests["base"])


def test_zero_shot_needs_no_training_anywhere(project):
    for run in [*halves(ZERO_SHOT).values(), *elsewhere(ZERO_SHOT, ["digits_blur"]).values()]:
        assert run.training is None
        assert "--eval-only" not in project.command(run)


def test_results_of_other_classes_are_not_taken(project):
    base = halves(COOP)["base"]
    finish(project, base, 0.5)
    project.directory(COOP).parent.mkdir()
    project.directory(base).rename(project.directory(COOP))
    state = project.state(COOP)
    assert state.kind == "foreign"
    assert "subsample is 'base', not 'all'" in state.reason


def test_the_last_column_is_the_harmonic_mean_of_the_means(project, capsys):
    for seed, base, new in ((1, 0.8, 0.5), (2, 0.9, 0.7)):
        run = Run("digits", "CoOp", "GlyphCLIP", shots=8, seed=seed)
        finish(project, halves(run)["base"], base)
        finish(project, halves(run)["new"], new)
    arguments = ["--output", str(project.output), "--project", str(ROOT)]
    grid = ["--datasets", "digits", "--trainers", "CoOp", "--shots", "8", "--seeds", "1", "2"]
    assert main(["base2new", *arguments, *grid]) == 0
    harmonic = 100 * 2 / (1 / 0.85 + 1 / 0.6)
    output = capsys.readouterr().out
    row = next(line for line in output.splitlines() if line.startswith("| CoOp"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == ["CoOp", "-", "85.00 ± 7.07", "60.00 ± 14.14", f"{harmonic:.2f}"]


def test_transfer_tests_the_shifts_and_averages_them(project, capsys):
    shifts = ["digits_noise", "digits_blur", "digits_rotate", "digits_invert"]
    accuracies = (0.9, 0.1, 0.2, 0.3, 0.4)
    for accuracy, run in zip(accuracies, elsewhere(COOP, shifts).values(), strict=True):
        finish(project, run, accuracy)
    arguments = ["--output", str(project.output), "--project", str(ROOT)]
    grid = ["--datasets", "digits", "--trainers", "CoOp", "--shots", "8", "--seeds", "1"]
    assert main(["transfer", *arguments, *grid]) == 0
    output = capsys.readouterr().out
    row = next(line for line in output.splitlines() if line.startswith("| CoOp"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells == ["CoOp", "-", "90.00", "10.00", "20.00", "30.00", "40.00", "25.00"]


def test_published_settings_belong_to_real_models_and_get_their_own_directory(project):
    real = Run("imagenet", "MaPLe_CMP", "ViT-B/16", shots=16, lam=0.01, form="ratio")
    run = published_settings(project, "transfer", real)
    assert dict(run.options)["TRAINER.MAPLE.PROMPT_DEPTH"] == "3"
    assert run.path != real.path
    assert published_settings(project, "transfer", COOP) == COOP
    small = Run("digits", "MaPLe", "GlyphCLIP", shots=8)
    assert published_settings(project, "base2new", small) == small


def test_a_method_without_a_config_for_the_backbone_is_refused_before_anything_runs(project):
    with pytest.raises(UserError, match="MaPLe_CMP has no config for RN50"):
        project.check([Run("dtd", "MaPLe_CMP", "RN50", shots=8, lam=0.01, form="ratio")])


def test_a_source_without_known_targets_asks_for_them(project):
    with pytest.raises(UserError, match="--targets"):
        main(["transfer", "--project", str(ROOT), "--datasets", "dtd"])
