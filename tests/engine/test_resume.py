"""Interrupted runs go on as if nothing had happened; other people's runs are left alone."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
import torch
from dassl.optim import build_lr_scheduler, build_optimizer
from dassl.utils import set_random_seed
from torch import nn
from torch.nn import functional as F

from .toy import ToyTrainer, weights


class Stop(Exception):
    """The power cut of these tests."""


class Stopping(ToyTrainer):
    """Stops in the middle of epoch 3."""

    def forward_backward(self, batch):
        if (self.epoch, self.batch_idx) == (2, 1):
            raise Stop
        return super().forward_backward(batch)


def run(cfg, kind=ToyTrainer, seed: int = 1):
    set_random_seed(seed)
    trainer = kind(cfg)
    trainer.train()
    return trainer


def interrupted_then_resumed(cfg, stopping, kind=ToyTrainer):
    with pytest.raises(Stop):
        run(cfg, stopping)
    return run(cfg, kind, seed=99)  # the seed must not matter: the state comes from the file


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", ["RandomSampler", "RandomClassSampler"])
def test_a_resumed_run_ends_with_the_very_same_weights(make_cfg, tmp_path, workers, sampler):
    options = (
        *("DATALOADER.NUM_WORKERS", workers, "DATALOADER.TRAIN_X.SAMPLER", sampler),
        *("DATALOADER.TRAIN_X.N_INS", 2, "INPUT.TRANSFORMS", ("random_flip", "cutout")),
    )
    whole = run(make_cfg("OUTPUT_DIR", str(tmp_path / "whole"), *options))
    resumed = interrupted_then_resumed(make_cfg(*options), Stopping)
    assert torch.equal(weights(whole), weights(resumed))
    assert resumed.start_epoch == 2


def test_without_the_restored_state_another_seed_gives_other_weights(make_cfg, tmp_path):
    """The tests above would notice a generator that is not restored."""
    first = run(make_cfg())
    other = run(make_cfg("OUTPUT_DIR", str(tmp_path / "other")), seed=99)
    assert not torch.equal(weights(first), weights(other))


def test_a_resumed_run_keeps_the_best_result_and_the_best_model(make_cfg, tmp_path):
    options = ("TEST.FINAL_MODEL", "best_val", "TRAIN.CHECKPOINT_FREQ", 0)
    whole = run(make_cfg("OUTPUT_DIR", str(tmp_path / "whole"), *options))
    resumed = interrupted_then_resumed(make_cfg(*options), Stopping)
    assert resumed.best_result == whole.best_result > -1
    assert torch.equal(weights(whole), weights(resumed))
    best = [
        torch.load(tmp_path / name / "linear/model-best.pth.tar", weights_only=True)["epoch"]
        for name in ("whole", "out")
    ]
    assert best[0] == best[1]


class Scaled(ToyTrainer):
    """Its scale doubles with every step."""

    def build_model(self):
        super().build_model()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1)

    def model_backward_and_update(self, loss, names=None):
        self.optim.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optim)
        self.scaler.update()


class StoppingScaled(Stopping, Scaled):
    """Stops in the middle of epoch 3."""


def test_the_grad_scaler_is_restored(make_cfg, tmp_path):
    whole = run(make_cfg("OUTPUT_DIR", str(tmp_path / "whole")), Scaled)
    resumed = interrupted_then_resumed(make_cfg(), StoppingScaled, Scaled)
    assert whole.scaler.get_scale() == resumed.scaler.get_scale() == 2.0 * 2**16
    assert torch.equal(weights(whole), weights(resumed))


class TwoModels(ToyTrainer):
    """A feature and a classifier part, registered apart."""

    def build_model(self):
        self.parts = {"body": nn.Linear(192, 4), "tail": nn.Linear(4, 3)}
        for name, part in self.parts.items():
            optim = build_optimizer(part, self.cfg.OPTIM)
            self.register_model(name, part, optim, build_lr_scheduler(optim, self.cfg.OPTIM))

    def model(self, image):
        return self.parts["tail"](F.relu(self.parts["body"](image.flatten(1))))


class StoppingTwoModels(TwoModels):
    """Is stopped between the two files of epoch 3."""

    def save_model(self, epoch, directory, **kwargs):
        if epoch == 2:
            self._models = {"body": self._models["body"]}
            super().save_model(epoch, directory, **kwargs)
            raise Stop
        super().save_model(epoch, directory, **kwargs)


def test_several_models_go_on_from_the_newest_epoch_they_all_have(make_cfg, tmp_path, capsys):
    whole = run(make_cfg("OUTPUT_DIR", str(tmp_path / "whole")), TwoModels)
    resumed = interrupted_then_resumed(make_cfg(), StoppingTwoModels, TwoModels)
    assert resumed.start_epoch == 2
    assert torch.equal(weights(whole), weights(resumed))
    shutil.rmtree(tmp_path / "out" / "tail")
    assert run(make_cfg(), TwoModels).start_epoch == 0
    assert "No checkpoint found, train from scratch" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["torn", "empty", "foreign"])
def test_a_bad_newest_checkpoint_is_skipped_for_the_one_before(make_cfg, tmp_path, capsys, damage):
    whole = weights(run(make_cfg()))
    path = tmp_path / "out/linear/model.pth.tar-4"
    data = {"torn": path.read_bytes()[:-99], "empty": b"", "foreign": b"hello"}[damage]
    path.write_bytes(data)
    capsys.readouterr()
    resumed = run(make_cfg(), seed=5)
    assert resumed.start_epoch == 3
    assert torch.equal(whole, weights(resumed))
    assert f'Skipping: cannot load the checkpoint "{path}"' in capsys.readouterr().out


def test_a_checkpoint_of_another_model_is_refused(make_cfg, tmp_path):
    run(make_cfg())
    path = tmp_path / "out/linear/model.pth.tar-4"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["state_dict"] = nn.Linear(5, 5).state_dict()
    torch.save(checkpoint, path)
    with pytest.raises(OSError, match=rf'the checkpoint "{path}" does not fit this model') as error:
        run(make_cfg())
    assert "\n" not in str(error.value)


def test_a_finished_run_is_only_tested_again(make_cfg, capsys):
    first = weights(run(make_cfg()))
    capsys.readouterr()
    again = run(make_cfg())
    out = capsys.readouterr().out
    assert "\nepoch [" not in out
    assert "Finish training\nDeploy the last-epoch model\nEvaluate on the *test* set" in out
    assert torch.equal(first, weights(again))
    assert again.epoch == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(("write", "epoch"), [(3, 1), (4, 2), (5, 2)])
def test_a_run_killed_while_it_writes_goes_on_from_what_is_whole(make_cfg, tmp_path, write, epoch):
    whole = weights(run(make_cfg("OUTPUT_DIR", str(tmp_path / "whole"))))
    child = os.fork()
    if child == 0:
        fsync, count = os.fsync, 0

        def die(descriptor):
            nonlocal count
            count += 1
            if count == write:  # every epoch has two
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            fsync(descriptor)

        os.fsync = die
        try:
            run(make_cfg())
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    resumed = run(make_cfg(), seed=77)
    assert resumed.start_epoch == epoch
    assert torch.equal(whole, weights(resumed))


def test_an_explicit_resume_goes_on_in_another_directory(make_cfg, tmp_path):
    options = ("TEST.FINAL_MODEL", "best_val")
    whole = run(make_cfg("OUTPUT_DIR", str(tmp_path / "whole"), *options))
    with pytest.raises(Stop):
        run(make_cfg("OUTPUT_DIR", str(tmp_path / "first"), *options), Stopping)
    resumed = run(make_cfg("RESUME", str(tmp_path / "first"), *options), seed=9)
    assert resumed.start_epoch == 2
    assert torch.equal(weights(whole), weights(resumed))
    with pytest.raises(FileNotFoundError, match=r"RESUME: there is no whole checkpoint .*nowhere"):
        run(make_cfg("RESUME", str(tmp_path / "nowhere")))
