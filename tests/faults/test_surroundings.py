"""What surrounds a run: variables, jobs of Slurm, missing packages, silence, signals."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from torch.utils.data import DataLoader

import coop_cmp
from coop_cmp import cli
from coop_cmp.cli import training
from coop_cmp.clip import load_clip
from coop_cmp.errors import UserError, one_line
from coop_cmp.features import encode
from coop_cmp.features.encode import ImageEncoder
from coop_cmp.predict.predictor import Predictor
from coop_cmp.runs.project import Project
from coop_cmp.runs.run import Run
from coop_cmp.sweep.launcher import Settings
from coop_cmp.sweep.process import Attempt, Trial
from coop_cmp.sweep.progress import SILENCE, Progress
from coop_cmp.sweep.slurm import attach, queue
from coop_cmp.sweep.slurm.submission import submit
from coop_cmp.sweep.timing import Estimator
from tests.conftest import ROOT
from tests.features.test_loaders import RandomImages

RUN = Run("digits", "CoOp", "GlyphCLIP", 8)


def test_variables_that_stand_for_options_do_not_reach_slurm(tmp_path, monkeypatch):
    tool = tmp_path / "squeue"
    tool.write_text("#!/bin/sh\nenv\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name in ("SQUEUE_STATES", "SBATCH_WAIT", "SLURM_CONF"):
        monkeypatch.setenv(name, "here")
    seen = {line.partition("=")[0] for line in queue.call("squeue").splitlines()}
    assert not seen & {"SQUEUE_STATES", "SBATCH_WAIT"}
    assert {"PATH", "SLURM_CONF"} <= seen


def test_a_request_that_slurm_cannot_meet_is_told_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "submit", lambda script, options: 7)
    project = Project(tmp_path)
    record, _ = submit(project, Settings(), [[RUN]], {"cpus-per-task": "99"}, 1)
    task = queue.Task(7, 0, record.name, "PENDING", "BadConstraints")
    monkeypatch.setattr(queue, "tasks", lambda *_: [task])
    attachment = attach.Attachment(project, Settings(), Progress(1, 0, 1, Estimator()), [RUN], {})
    attachment.look()
    assert "1 pending (BadConstraints: Slurm cannot start this; --cancel" in attachment.status()


def test_a_long_run_says_every_half_minute_that_it_goes_on(tmp_path, capsys):
    estimator = Estimator()
    estimator.add(RUN, 100.0)
    progress = Progress(2, 1, 2, estimator)
    progress.begin([RUN])
    attempt = Attempt(Trial(RUN), "cpu", None, None, tmp_path / "log")  # type: ignore[arg-type]
    (tmp_path / "log").write_text("epoch [3/50] batch [1/2]\n")
    attempt.started -= 40
    progress.tick({0: attempt})
    assert capsys.readouterr().out == "", "not before"
    progress.last -= SILENCE
    progress.tick({0: attempt})
    progress.tick({0: attempt})
    assert capsys.readouterr().out == f"running {RUN}  epoch 3/50  40 s [1/2, about 1 min left]\n"


def test_long_encoding_says_how_far_it_is_every_half_minute(monkeypatch, capsys):
    clock = iter([0.0, 20.0, 40.0, 60.0, 80.0, 100.0])
    monkeypatch.setattr(encode.time, "monotonic", lambda: next(clock))
    loader = DataLoader(RandomImages(), batch_size=1)
    ImageEncoder(loader.dataset, 1, loader, lambda images: images.flatten(1))()
    assert capsys.readouterr().out.splitlines() == [
        "encoded 2 of 5 images, about 60 s left",
        "encoded 4 of 5 images, about 20 s left",
    ]


@pytest.mark.parametrize("name", ["roberta-ViT-B-32", "ViT-B-16-SigLIP", "nllb-clip-base"])
def test_a_model_that_needs_transformers_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"needs .*: pip install 'coop-cmp\[transformers\]'"):
        load_clip(name)


def test_there_are_no_more_loaders_than_cores_unless_asked_for(monkeypatch):
    monkeypatch.setattr(training, "cores_here", lambda: 2)
    config = str(ROOT / "configs/trainers/CoOp/clip.yaml")
    words = ["train", "--trainer", "CoOp", "--config-file", config, "--dataset-config-file"]
    words.append(str(ROOT / "configs/datasets/oxford_pets.yaml"))
    for more, expected in (([], 2), (["DATALOADER.NUM_WORKERS", "5"], 5)):
        cfg = training.setup_cfg(cli.parse([*words, *more])[1])
        assert expected == cfg.DATALOADER.NUM_WORKERS


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("first\nsecond", "first second"),
        ("a class \x1b[31mred\x07", r"a class \x1b[31mred\x07"),
        ("Caught it in the act", "Caught it in the act"),
        (
            "Caught OSError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
            "last):\n  File x\nValueError: no\n\nOSError: cannot read\nthe image",
            "cannot read the image",
        ),
    ],
)
def test_an_error_of_several_lines_keeps_its_beginning(message, line):
    assert one_line(UserError(message)) == line


def test_a_threshold_of_an_unseeded_run_is_chosen_on_the_same_images(run, pictures, monkeypatch):
    for kind in ("cat", "dog", "tree"):
        image = pictures / "val" / kind / "0.png"
        for number in range(1, 9):
            image.with_name(f"{number}.png").write_bytes(image.read_bytes())
    run("unseeded", "SEED", "-1", "INPUT.SHARED_VIEWS", "False")
    model = coop_cmp.load(pictures.parent / "unseeded")
    drawn: list[list[str]] = []

    def logits(self: Predictor, items: list) -> np.ndarray:
        drawn.append([item.impath for item in items])
        return np.zeros((len(items), 3))

    monkeypatch.setattr(Predictor, "logits", logits)
    for _ in range(4):
        model.threshold(1.0, pictures)
    assert drawn == [drawn[0]] * 4
