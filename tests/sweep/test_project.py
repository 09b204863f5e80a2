"""coop_cmp/runs/project.py: how runs are called, and which results are theirs."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import coop_cmp.datasets
import coop_cmp.trainers  # noqa: F401 - declares them
from coop_cmp import CONFIGS
from coop_cmp.cli.training import find_config
from coop_cmp.config import METHODS
from coop_cmp.errors import UserError
from coop_cmp.runs.grid import read_grids
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from tests.made_runs import finish
from tests.sweep.fake import arguments, behave, calls, main, project_of


def test_a_grid_file_may_hold_several_grids_and_the_command_line_replaces_axes(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text("- datasets: digits\n  lambdas: 0.5\n- datasets: [food101]\n  tag: x\n")
    first, second = read_grids(file, {"seeds": [7]})
    assert (first.datasets, first.lambdas, first.seeds) == (("digits",), (0.5,), (7,))
    assert (second.datasets, second.tag, second.seeds) == (("food101",), "x", (7,))


def test_the_command_passes_everything_that_makes_the_run_what_it_is(root):
    project = project_of(root, "/data")
    run = Run("food101", "CoOp_CMP", "ViT-B/32", 4, 2, 0.001, "log", options=(("OPTIM.LR", "0.1"),))
    words = " ".join(project.command(run))
    assert f"--config-file {root}/configs/trainers/CoOp/clip.yaml" in words
    assert f"--dataset-config-file {root}/configs/datasets/food101.yaml" in words
    assert "--backbone ViT-B/32 --seed 2" in words
    assert words.endswith(
        "--root /data DATASET.NUM_SHOTS 4 TRAINER.CMP.LAMBDA 0.001 TRAINER.CMP.FORM log"
        " INPUT.SHARED_VIEWS True OPTIM.LR 0.1"
    )


@pytest.mark.parametrize(
    ("lam", "text"),
    [(0.01, "0.01"), (1.0, "1"), (0.3333333, "0.3333333"), (1e-5, "1e-05"), (0.0, "0")],
)
def test_a_lambda_keeps_all_its_digits(root, lam, text):
    run = Run("digits", "CoOp_CMP", "GlyphCLIP", 8, 1, lam, "ratio")
    assert run.setting == f"GlyphCLIP_8shots_lambda{text}"
    command = project_of(root).command(run)
    assert command[command.index("TRAINER.CMP.LAMBDA") + 1] == text
    assert main(arguments(root, "--seeds", "1", "--trainers", "CoOp_CMP", "--lambdas", text)) == 0


def test_a_command_to_copy_survives_the_shell(root):
    project = Project(root / "output", "/my data", root / "configs")
    run = Run("digits", "CoOp", "GlyphCLIP", 8, options=(("INPUT.TRANSFORMS", "['a', 'b']"),))
    assert shlex.split(project.shell_command(run)) == ["coop-cmp", *project.command(run)]


def test_a_command_to_copy_names_our_configs_shortly_and_they_are_found(tmp_path, monkeypatch):
    run = Run("digits", "CoOp", "GlyphCLIP", 8)
    words = shlex.split(Project(tmp_path).shell_command(run))
    monkeypatch.chdir(tmp_path)
    for option in ("--config-file", "--dataset-config-file"):
        name = words[words.index(option) + 1]
        assert name.startswith("configs/")
        assert Path(find_config(name)) == CONFIGS.parent / name
    (tmp_path / "configs/datasets").mkdir(parents=True)
    (tmp_path / name).touch()
    assert find_config(name) == name, "a file of one's own comes first"


def test_a_run_by_hand_in_the_place_of_another_is_not_used_and_not_overwritten(root, capsys):
    assert main(arguments(root, "--seeds", "1")) == 0
    project = project_of(root)
    run = Run("digits", "CoOp", "GlyphCLIP", 8, 1)
    other = replace(run, options=(("OPTIM.MOMENTUM", "0.5"),))
    shutil.rmtree(project.directory(run))
    finish(project, other, accuracy=0.9)  # a tag-less twin: the same directory
    before = (project.directory(run) / "results.json").read_text()
    assert main(arguments(root, "--seeds", "1")) == 1
    out, err = capsys.readouterr()
    assert "OPTIM.MOMENTUM is 0.5, not 0.9" in err
    assert "90.00" not in out
    assert (project.directory(run) / "results.json").read_text() == before
    assert main(arguments(root, "--seeds", "1", "--redo")) == 0
    assert project.state(run).kind == "done"


@pytest.mark.parametrize("name", ["trainers/CoOp/glyph", "datasets/digits"])
def test_results_made_before_a_config_changed_are_of_another_run(root, capsys, name):
    file = root / f"configs/{name}.yaml"
    assert main(arguments(root, "--seeds", "1")) == 0
    text = file.read_text()
    file.write_text(f"# why\n\n{text}\nTRAIN: {{CHECKPOINT_FREQ: 5}}\n")
    assert main(arguments(root, "--seeds", "1")) == 0, "nothing that a result depends on"
    file.write_text(f"{text}\nOPTIM: {{LR: 0.5}}\n")
    assert main(arguments(root, "--seeds", "1")) == 1
    err = capsys.readouterr().err
    assert "holds a run with other settings: OPTIM.LR is 0.0003, not 0.5; --redo replaces" in err
    assert main(arguments(root, "--seeds", "1", "--tag", "fast")) == 0
    assert len(calls(root)) == 2


def test_a_config_edited_in_the_middle_of_a_sweep_does_not_mix_two_settings(root, capsys):
    behave(root, {1: ["good"], 2: ["edit"], 3: ["good"]})
    assert main(arguments(root, "--jobs", "1")) == 1
    out, err = capsys.readouterr()
    assert "1 runs do not count: settings changed while the sweep ran" in err
    assert "seed2: its settings changed while it ran" in err
    assert "OPTIM.LR is 0.0003, not 0.5" in err
    assert "| CoOp      | 3       | 53.00" in out, "only the run made with the settings of now"
    assert main(arguments(root, "--jobs", "1", "--redo")) == 0
    assert "| CoOp      | 1, 2, 3 |" in capsys.readouterr().out
    assert [path[-1] for path in calls(root)] == ["1", "1", "2", "2", "3"]


def test_an_evaluation_of_a_model_that_was_trained_anew_is_not_done(root):
    words = arguments(root, "--targets", "digits_noise", "--seeds", "1")
    assert main(words) == 0
    project = project_of(root)
    training = Run("digits", "CoOp", "GlyphCLIP", 8, 1)
    evaluation = replace(training, dataset="digits_noise", source="digits")
    assert project.state(evaluation).kind == "done"
    shutil.rmtree(project.directory(training))
    (finish(project, training) / "model.txt").write_text(f"learned by {training}")
    state = project.state(evaluation)
    assert state.kind == "stale"
    assert "was trained anew since" in state.reason
    assert main(words) == 0
    assert project.state(evaluation).kind == "done"
    assert len(calls(root)) == 3


def test_two_runs_that_would_share_a_directory_are_refused_before_anything_starts(root, tmp_path):
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "- {datasets: digits, trainers: CoOp, seeds: 1}\n"
        "- {datasets: digits, trainers: CoOp, seeds: 1, options: {OPTIM.LR: 0.5}}\n"
    )
    with pytest.raises(UserError, match="would share the directory digits/CoOp"):
        main([str(grid), "--output", str(root / "output")])
    assert calls(root) == []


TRAINER_CONFIGS = sorted((Path(__file__).parents[2] / "configs/trainers").glob("*/*.yaml"))


@pytest.mark.parametrize(
    "file",
    # Fine-tuned models are too large to keep several of each run.
    [
        pytest.param(f, id=f"{f.parent.name}/{f.stem}")
        for f in TRAINER_CONFIGS
        if f.parent.name != "CLIPFT" and METHODS[f.parent.name].trains
    ],
)
def test_a_killed_long_run_has_a_checkpoint_to_go_on_from(file):
    settings = yaml.safe_load(file.read_text())
    table = [epochs for _, epochs in settings["OPTIM"].get("SHOT_EPOCHS", [])]
    longest = max(table, default=None) or settings["OPTIM"]["MAX_EPOCH"]
    assert 4 <= longest / settings["TRAIN"]["CHECKPOINT_FREQ"] <= 20
