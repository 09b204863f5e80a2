"""coop_cmp/sweep/project.py: how runs are called, and which results are theirs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

import datasets  # noqa: F401 - registers them
from coop_cmp.sweep import project as project_module
from coop_cmp.sweep.__main__ import main
from coop_cmp.sweep.grid import Run, read_grids
from coop_cmp.sweep.project import Project
from tests.sweep.conftest import arguments, calls


def test_a_grid_file_may_hold_several_grids_and_the_command_line_replaces_axes(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text("- datasets: digits\n  lambdas: 0.5\n- datasets: [food101]\n  tag: x\n")
    first, second = read_grids(file, {"seeds": [7]})
    assert (first.datasets, first.lambdas, first.seeds) == (("digits",), (0.5,), (7,))
    assert (second.datasets, second.tag, second.seeds) == (("food101",), "x", (7,))


def test_the_command_passes_everything_that_makes_the_run_what_it_is(root):
    project = Project(root, root / "output", data="/data")
    run = Run("food101", "CoOp_CMP", "ViT-B/32", 4, 2, 0.001, "log", options=(("OPTIM.LR", "0.1"),))
    words = " ".join(project.command(run))
    assert f"--config-file {root}/configs/trainers/CoOp/vit_b16.yaml" in words
    assert f"--dataset-config-file {root}/configs/datasets/food101.yaml" in words
    assert "--backbone ViT-B/32 --seed 2" in words
    assert words.endswith(
        "--root /data DATASET.NUM_SHOTS 4 TRAINER.CMP.LAMBDA 0.001 TRAINER.CMP.FORM log"
        " OPTIM.LR 0.1"
    )


@pytest.mark.parametrize(
    ("lam", "text"),
    [(0.01, "0.01"), (1.0, "1"), (0.3333333, "0.3333333"), (1e-5, "1e-05"), (0.0, "0")],
)
def test_a_lambda_keeps_all_its_digits(root, lam, text):
    run = Run("digits", "CoOp_CMP", "GlyphCLIP", 8, 1, lam, "ratio")
    assert run.setting == f"GlyphCLIP_8shots_lambda{text}"
    command = Project(root, root / "output").command(run)
    assert command[command.index("TRAINER.CMP.LAMBDA") + 1] == text
    assert main(arguments(root, "--seeds", "1", "--trainers", "CoOp_CMP", "--lambdas", text)) == 0


def test_a_command_to_copy_survives_the_shell(root):
    project = Project(root, root / "output", data="/my data")
    run = Run("digits", "CoOp", "GlyphCLIP", 8, options=(("INPUT.TRANSFORMS", "['a', 'b']"),))
    assert shlex.split(project.shell_command(run))[1:] == project.command(run)


def test_a_results_file_of_another_run_is_not_used_and_not_overwritten(root, capsys):
    assert main(arguments(root, "--seeds", "1")) == 0
    file = root / "output/digits/CoOp/GlyphCLIP_8shots/seed1/results.json"
    foreign = file.read_text().replace('"shots": 8', '"shots": 16')
    file.write_text(foreign)
    assert main(arguments(root, "--seeds", "1")) == 1
    assert "shots is 16, not 8" in capsys.readouterr().err
    assert file.read_text() == foreign


def test_other_options_are_other_settings(root, tmp_path, capsys):
    grid = tmp_path / "grid.yaml"
    grid.write_text("datasets: digits\ntrainers: CoOp\nseeds: 1\n")
    words = ["--project", str(root), "--output", str(root / "output"), str(grid)]
    assert main(words) == 0
    grid.write_text(grid.read_text() + "options: {OPTIM.MAX_EPOCH: 5}\n")
    assert main(words) == 1
    assert "options is {}, not {'OPTIM.MAX_EPOCH': '5'}" in capsys.readouterr().err
    grid.write_text(grid.read_text() + "tag: short\n")
    assert main(words) == 0, "a tag gives them a directory of their own"


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
    assert f"configs/{name}.yaml has changed since; remove the run's directory, or choose" in err
    assert err.count("changed") == 1
    assert main(arguments(root, "--seeds", "1", "--tag", "fast")) == 0
    assert len(calls(root)) == 2
    (root / "output/digits/CoOp/GlyphCLIP_8shots/seed1/sweep.json").unlink()
    assert main(arguments(root, "--seeds", "1")) == 0, "a run by hand has nothing to compare"


def test_a_config_file_is_read_once_for_all_its_runs(root, monkeypatch):
    read: list[Path] = []
    digest = project_module._digest

    def note(file: Path) -> str:
        read.append(file)
        return digest(file)

    monkeypatch.setattr(project_module, "_digest", note)
    assert main(arguments(root, "--seeds", "1", "2", "3")) == 0
    assert len(read) == 2


TRAINER_CONFIGS = sorted((Path(__file__).parents[2] / "configs/trainers").glob("*/*.yaml"))


@pytest.mark.parametrize(
    "file",
    # Fine-tuned models are too large to keep several of each run.
    [
        pytest.param(f, id=f"{f.parent.name}/{f.stem}")
        for f in TRAINER_CONFIGS
        if "CLIPFT" not in str(f)
    ],
)
def test_a_killed_long_run_has_a_checkpoint_to_go_on_from(file):
    settings = yaml.safe_load(file.read_text())
    table = [epochs for _, epochs in settings["OPTIM"].get("SHOT_EPOCHS", [])]
    longest = max(table, default=None) or settings["OPTIM"]["MAX_EPOCH"]
    assert 4 <= longest / settings["TRAIN"]["CHECKPOINT_FREQ"] <= 20
