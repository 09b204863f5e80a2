"""coop_cmp/runs/identity.py: one run per directory, and which settings make it what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

import coop_cmp.trainers  # noqa: F401 - declares them
from coop_cmp import cli
from coop_cmp.cli.training import evaluated, setup_cfg
from coop_cmp.config import flatten
from coop_cmp.errors import UserError
from coop_cmp.runs.identity import Identity, claim, identify, read_identity
from coop_cmp.runs.run import Run

RUN = Run("digits", "CoOp_CMP", "GlyphCLIP", 8, 2, 0.05, "log")


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        Run("digits", "ZeroshotCLIP", "GlyphCLIP"),
        Run("digits", "MaPLe", "GlyphCLIP", 1),
        Run("digits", "CLIPFT", "GlyphCLIP", 16, options=(("OPTIM.MAX_EPOCH", "3"),)),
        Run("imagenet", "CoCoOp", "ViT-B/16", 16, options=(("INPUT.SIZE", "(32, 32)"),)),
        Run("eurosat", "ProDA_CMP", "RN50", 4, lam=0.01, form="ratio"),
        replace(RUN, split="val"),
        replace(RUN, dataset="digits_blur", source="digits"),
    ],
    ids=str,
)
def test_a_sweep_and_train_py_agree_on_what_a_run_is(project, run):
    if run.training:
        claim(project.directory(run.training), project.identity(run.training))
    args = cli.parse(project.command(run))[1]
    ours = identify(flatten(cfg := setup_cfg(args)), evaluated(args, cfg))
    assert ours.differences(project.identity(run)) == []
    assert ours.as_record() == project.identity(run).as_record()


@pytest.mark.parametrize(
    ("change", "digest", "group", "pair"),
    [
        ({}, True, True, True),
        ({"SEED": 5}, False, True, True),
        ({"TRAINER.CMP.LAMBDA": 0.5}, False, False, True),
        ({"TRAINER.CMP.FORM": "ratio"}, False, False, True),
        ({"TRAINER.NAME": "CoOp"}, False, False, True),
        ({"CALIBRATOR.NAME": "temperature"}, False, False, True),
        ({"OPTIM.LR": 0.5}, False, False, False),
        ({"DATASET.NUM_SHOTS": 4}, False, False, False),
    ],
)
def test_seeds_make_a_group_and_terms_make_a_pair(project, change, digest, group, pair):
    settings = dict(project.identity(RUN).settings)
    one, other = Identity(settings), Identity({**settings, **change})
    if other.settings["TRAINER.NAME"] == "CoOp":
        plain = {k: v for k, v in other.settings.items() if not k.startswith("TRAINER.CMP.")}
        other = Identity(plain)
    same = (one.digest == other.digest, one.group == other.group, one.pair == other.pair)
    assert same == (digest, group, pair)


def test_an_evaluation_depends_on_the_training_behind_it(project):
    evaluation = replace(RUN, dataset="digits_blur", source="digits")
    plain = project.identity(evaluation)
    assert plain.training is not None
    assert plain.training.digest == project.identity(RUN).digest
    seed = project.identity(replace(evaluation, seed=3))
    assert (seed.digest != plain.digest, seed.group == plain.group) == (True, True)
    epoch = replace(plain, epoch=5)
    assert epoch.group != plain.group
    baseline = project.identity(replace(evaluation, trainer="CoOp", lam=None, form=None))
    assert baseline.pair == plain.pair


def test_settings_that_cannot_change_a_number_do_not_count(project):
    free = {"DATALOADER.NUM_WORKERS": "0", "TRAIN.PRINT_FREQ": "1", "DATASET.ROOT": "/elsewhere"}
    other = project.identity(replace(RUN, options=tuple(free.items())))
    assert other == project.identity(RUN)
    node = project.identity(replace(RUN, options=(("TRAINER.PRODA.N_CTX", "3"),)))
    assert node == project.identity(RUN), "the settings of other methods"


def test_the_images_of_a_folder_are_a_part_of_what_a_run_is(project):
    def of(**values):
        options = tuple((f"DATASET.{name}", value) for name, value in values.items())
        return project.identity(replace(RUN, options=options))

    birds, boats = of(TITLE="birds", CONTENT="1"), of(TITLE="birds", CONTENT="2")
    assert len({of().pair, birds.pair, boats.pair}) == 3
    assert birds.dataset == "birds"


def test_settings_of_a_trainer_from_elsewhere_all_count():
    settings = {"TRAINER.NAME": "PromptSRC", "TRAINER.PROMPTSRC.X": (1, 2.0), "OUTPUT_DIR": "a"}
    assert identify(settings).settings == {
        "TRAINER.NAME": "PromptSRC",
        "TRAINER.PROMPTSRC.X": [1, 2],
    }


def test_a_claimed_directory_takes_its_own_run_again_and_no_other(project, tmp_path):
    identity, other = project.identity(RUN), project.identity(replace(RUN, seed=7))
    claim(tmp_path / "out", identity)
    claim(tmp_path / "out", identity)
    assert read_identity(tmp_path / "out") == identity
    with pytest.raises(UserError, match=r"other settings \(SEED is 2, not 7\); .*--redo"):
        claim(tmp_path / "out", other)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    (tmp_path / "out/prompt_learner").mkdir()
    (tmp_path / "out/prompt_learner/model.pth.tar-5").write_text("")
    (tmp_path / "out" / "results.json").write_text("")
    claim(tmp_path / "out", other, redo=True)
    assert read_identity(tmp_path / "out") == other
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert left == ["notes.txt", "run.json"], "what is not the run's own stays"


@pytest.mark.parametrize("name", ["results.json", "prompt_learner/model-best.pth.tar"])
def test_what_a_run_of_unknown_settings_left_is_not_overwritten(project, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=r"of a run of unknown settings; .*--redo"):
        claim(tmp_path, project.identity(RUN))
