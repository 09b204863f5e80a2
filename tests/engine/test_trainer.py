"""The training loop: hooks, printed lines, files, progress."""

from __future__ import annotations

import io
import re
import sys
import types

import pytest
import torch
from dassl.engine import SimpleTrainer, TrainerBase, TrainerX, build_trainer
from dassl.modeling import BACKBONE_REGISTRY, Backbone
from dassl.utils import setup_logger
from torch import nn

from .toy import ToyTrainer, weights

# The hooks in the published order, for one epoch of one batch.
HOOKS = (
    *("check_cfg", "build_data_loader", "build_model", "register_model"),
    *("before_train", "resume_model_if_exist", "init_writer"),
    *("before_epoch", "run_epoch", "set_model_mode", "forward_backward", "parse_batch_train"),
    *("model_backward_and_update", "model_zero_grad", "model_backward", "detect_anomaly"),
    *("model_update", "update_lr"),
    *("after_epoch", "test", "set_model_mode", "parse_batch_test", "model_inference"),
    *("save_model", "save_model"),
    *("after_train", "load_model", "test", "set_model_mode", "parse_batch_test"),
    *("model_inference", "close_writer"),
)


def traced(kind: type) -> tuple[type, list[str]]:
    """A child of ``kind`` that notes the name of every hook when it is called."""
    calls: list[str] = []

    def note(name):
        def method(self, *args, **kwargs):
            calls.append(name)
            return getattr(super(child, self), name)(*args, **kwargs)

        return method

    child = type(kind.__name__, (kind,), {name: note(name) for name in HOOKS})
    return child, calls


def test_the_hooks_run_in_the_published_order(make_cfg):
    kind, calls = traced(ToyTrainer)
    cfg = make_cfg(
        *("OPTIM.MAX_EPOCH", 1, "DATALOADER.TRAIN_X.BATCH_SIZE", 18),
        *("TEST.FINAL_MODEL", "best_val", "TRAIN.CHECKPOINT_FREQ", 0),
    )
    kind(cfg).train()
    assert calls == list(HOOKS)


def test_a_run_prints_and_leaves_what_log_parsers_and_people_look_for(make_cfg, tmp_path, capsys):
    cfg = make_cfg("TRAIN.CHECKPOINT_FREQ", 3, "TRAIN.PRINT_FREQ", 2)
    build_trainer(cfg).train()
    out = capsys.readouterr().out
    for line in ("Loading trainer: ToyTrainer", "Finish training", "Deploy the last-epoch model"):
        assert f"{line}\n" in out
    assert "Evaluate on the *test* set\n=> result\n* total: 9\n" in out
    assert re.search(r"\* accuracy: \d+\.\d%\n", out)
    assert re.search(r"^Elapsed: 0:00:\d\d$", out, re.M)
    lines = [line for line in out.splitlines() if line.startswith("epoch [")]
    number = r"\d+\.\d{3} \(\d+\.\d{3}\)"
    pattern = (
        rf"epoch \[(\d)/4\] batch \[(\d)/4\] time {number} data {number} "
        r"loss \d+\.\d{4} \(\d+\.\d{4}\) lr (\d\.\d{4}e-\d\d) eta 0:00:\d\d"
    )
    matches = [re.fullmatch(pattern, line) for line in lines]
    assert [(m[1], m[2]) for m in matches if m] == [(e, b) for e in "1234" for b in "24"]
    # The trainer steps the schedule in the last batch, so that line shows the next rate.
    rates = [m[3] for m in matches if m]
    assert rates[:4] == ["1.0000e-05", "1.0000e-02", "1.0000e-02", "8.5355e-03"]
    files = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    assert {"linear/model.pth.tar-3", "linear/model.pth.tar-4", "linear/checkpoint"} <= files
    assert "linear/model.pth.tar-2" not in files
    assert not [name for name in files if name.endswith(".tmp")]


def test_the_best_validation_result_is_kept_and_deployed(make_cfg, tmp_path, monkeypatch):
    results = iter([10.0, 30.0, 20.0, 30.0, 55.0])
    splits = []

    def test(self, split=None):
        splits.append(split)
        return next(results)

    monkeypatch.setattr(ToyTrainer, "test", test)
    trainer = build_trainer(make_cfg("TEST.FINAL_MODEL", "best_val"))
    trainer.train()
    assert splits == ["val"] * 4 + [None]
    best = torch.load(tmp_path / "out/linear/model-best.pth.tar", weights_only=True)
    assert (best["epoch"], best["val_result"], best["best_result"]) == (2, 30.0, 30.0)
    assert torch.equal(weights(trainer)[:5], best["state_dict"]["2.weight"].flatten()[:5])


def test_the_evaluator_is_told_the_split_before_its_reset(make_cfg, monkeypatch):
    trainer = build_trainer(make_cfg("TEST.SPLIT", "val"))
    evaluator, seen = trainer.evaluator, []
    reset = evaluator.reset
    monkeypatch.setattr(evaluator, "reset", lambda: (seen.append(evaluator.split), reset()))
    for split in (None, "val", "test"):
        trainer.test(split)
    assert seen == ["val", "val", "test"]


def test_validation_falls_back_to_the_test_data(make_cfg, capsys):
    trainer = build_trainer(make_cfg())
    trainer.val_loader = None
    trainer.test("val")
    assert trainer.evaluator.split == "val"
    assert "Evaluate on the *test* set" in capsys.readouterr().out


def test_no_test_means_no_test(make_cfg, capsys):
    build_trainer(
        make_cfg("TEST.NO_TEST", True, "TEST.FINAL_MODEL", "best_val", "OPTIM.MAX_EPOCH", 1)
    ).train()
    assert "Evaluate" not in capsys.readouterr().out


class NoModel(TrainerX):
    """Zero-shot: nothing to train, nothing registered."""

    def build_model(self) -> None: ...

    def model_inference(self, input):
        return input.flatten(1)[:, :3]


def test_a_trainer_without_a_model_trains_saves_and_resumes_without_a_crash(
    make_cfg, tmp_path, capsys
):
    trainer = NoModel(make_cfg("TRAINER.NAME", "NoModel"))
    trainer.train()
    trainer.save_model(0, str(tmp_path / "out"))
    assert trainer.resume_model_if_exist(str(tmp_path / "out")) == 0
    trainer.load_model(str(tmp_path / "out"))
    assert "=> result\n* total: 9" in capsys.readouterr().out


def test_a_step_without_any_registered_model_still_runs(make_cfg, capsys):
    class Cache(NoModel):
        def forward_backward(self, batch):
            return {"seen": len(batch["img"])}

    Cache(make_cfg("OPTIM.MAX_EPOCH", 1)).train()
    assert "seen 4.0000 (4.0000) lr 0.0000e+00" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "batches"), [("train_x", 4), ("train_u", 3), ("smaller_one", 3)])
def test_two_loaders_run_side_by_side(make_cfg, count, batches):
    cfg = make_cfg(
        *("TRAINER.NAME", "ToyTrainerXU", "TRAIN.COUNT_ITER", count, "OPTIM.MAX_EPOCH", 1),
        *("DATALOADER.TRAIN_U.SAME_AS_X", False, "DATALOADER.TRAIN_U.BATCH_SIZE", 2),
    )
    trainer = build_trainer(cfg)
    trainer.train()
    assert (trainer.num_batches, trainer.batch_idx) == (batches, batches - 1)


def test_an_unknown_iteration_count_and_trainer_are_named(make_cfg):
    cfg = make_cfg("TRAINER.NAME", "ToyTrainerXU", "TRAIN.COUNT_ITER", "both")
    with pytest.raises(ValueError, match=r"TRAIN\.COUNT_ITER: expected one of"):
        build_trainer(cfg).train()
    with pytest.raises(ValueError, match=r"do you mean \[ToyTrainer\]"):
        build_trainer(make_cfg("TRAINER.NAME", "ToyTrainr"))


def test_models_are_registered_once_and_only_after_the_base_class():
    class Early(TrainerBase):
        def __init__(self) -> None:
            self.register_model("a", nn.Linear(1, 1))

    with pytest.raises(AttributeError, match=r"super\(\).__init__"):
        Early()
    trainer = TrainerBase()
    trainer.register_model("a", nn.Linear(1, 1))
    with pytest.raises(AssertionError, match="Found duplicate model names"):
        trainer.register_model("a", nn.Linear(1, 1))
    assert trainer.get_model_names("a") == ["a"]
    with pytest.raises(AssertionError, match="no model named 'b'"):
        trainer.get_model_names(["b"])


def test_only_the_named_registered_models_change_mode():
    trainer = TrainerBase()
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    trainer.register_model("first", first)
    trainer.register_model("second", second)
    trainer.set_model_mode("eval", "first")
    assert (first.training, second.training) == (False, True)
    trainer.set_model_mode("test")
    assert not second.training
    with pytest.raises(KeyError, match="mode"):
        trainer.set_model_mode("sleep")


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run(loss):
    trainer = TrainerBase()
    trainer.model_backward_and_update(torch.tensor(loss, requires_grad=True))
    with pytest.raises(FloatingPointError, match="Loss is infinite or NaN!"):
        trainer.save_model(0, "nowhere")


def test_saved_weights_load_by_epoch_or_the_best_with_or_without_a_result(
    make_cfg, tmp_path, capsys
):
    trainer, out = build_trainer(make_cfg()), str(tmp_path / "out")
    before = weights(trainer).clone()
    trainer.save_model(2, out)
    trainer.save_model(4, out, val_result=torch.tensor(71.25), model_name="model-best.pth.tar")
    for arguments, note in (((out, 3), "epoch=3"), ((out,), "epoch=5, val_result=71.2")):
        nn.init.zeros_(trainer.model[2].weight)
        trainer.load_model(*arguments)
        assert torch.equal(before, weights(trainer))
        assert f"to linear ({note})" in capsys.readouterr().out
    trainer.load_model("")
    assert "load_model() is skipped" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match=r"model\.pth\.tar-9"):
        trainer.load_model(out, 9)
    trainer._models["linear"] = nn.Linear(2, 2)
    with pytest.raises(OSError, match="does not fit this model"):
        trainer.load_model(out, 3)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_and_the_log_gets_the_lines(make_cfg, tmp_path, monkeypatch):
    stdout, stderr = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)
    setup_logger(str(tmp_path / "log.txt"))
    build_trainer(make_cfg("OPTIM.MAX_EPOCH", 2)).train()
    sys.stdout.close()
    assert (tmp_path / "log.txt").read_text().count("\nepoch [") == 8
    assert "\nepoch [" not in stdout.getvalue()
    assert "* accuracy:" in stdout.getvalue()
    bar = stderr.getvalue()
    assert "epoch 2/2" in bar
    assert re.search(r"4/4, eta 0:00:\d\d lr \d\.\d\de-\d\d loss \d\.\d{4} \(\d\.\d{4}\)", bar)


@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_anything_but_a_terminal_gets_plain_lines_only(make_cfg, monkeypatch, which):
    """Of every batch, as there are fewer than TRAIN.PRINT_FREQ."""
    streams = {"stdout": Terminal(), "stderr": Terminal(), which: io.StringIO()}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    build_trainer(make_cfg("OPTIM.MAX_EPOCH", 1)).train()
    assert streams["stdout"].getvalue().count("\nepoch [1/1]") == 4
    assert "epoch" not in streams["stderr"].getvalue()


def test_a_missing_tensorboard_costs_one_line(make_cfg, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    build_trainer(make_cfg("OPTIM.MAX_EPOCH", 1)).train()
    assert capsys.readouterr().out.count("tensorboard is not installed") == 1


def test_tensorboard_gets_losses_rates_and_results(make_cfg, monkeypatch):
    written = []
    writer = types.SimpleNamespace(
        add_scalar=lambda tag, value, step: written.append((tag, step)), close=lambda: None
    )
    trainer = build_trainer(make_cfg("OPTIM.MAX_EPOCH", 2))
    monkeypatch.setattr(trainer, "init_writer", lambda _: setattr(trainer, "_writer", writer))
    trainer.train()
    assert ("train/loss", 0) in written
    assert ("train/lr", 7) in written
    assert written[-3:] == [("test/accuracy", 1), ("test/error_rate", 1), ("test/macro_f1", 1)]
    assert trainer._writer is None


class Pixels(Backbone):
    """The first four pixels."""

    def __init__(self, pretrained: bool = True) -> None:
        super().__init__()
        self._out_features = 4

    def forward(self, x):
        return x.flatten(1)[:, :4]


def test_the_simple_trainer_builds_backbone_head_and_classifier(make_cfg, monkeypatch):
    monkeypatch.setitem(BACKBONE_REGISTRY._obj_map, "pixels", Pixels)
    cfg = make_cfg(
        *("MODEL.BACKBONE.NAME", "pixels", "MODEL.HEAD.NAME", "mlp"),
        *("MODEL.HEAD.HIDDEN_LAYERS", (5, 6), "MODEL.HEAD.DROPOUT", 0.1),
    )
    trainer = SimpleTrainer(cfg)
    trainer.model.eval()
    scores, features = trainer.model(torch.rand(2, 3, 8, 8), return_feature=True)
    assert (scores.shape, features.shape, trainer.model.fdim) == ((2, 3), (2, 6), 6)
    assert 0 <= trainer.test() <= 100
    with pytest.raises(ValueError, match=r"do you mean \[resnet50\]"):
        SimpleTrainer(make_cfg("MODEL.BACKBONE.NAME", "resnet5"))


def test_a_residual_network_gives_features():
    backbone = BACKBONE_REGISTRY.get("resnet18")(pretrained=False).eval()
    assert backbone(torch.rand(1, 3, 32, 32)).shape == (1, backbone.out_features) == (1, 512)


def test_a_checkouts_own_logger_needs_to_know_nothing_of_terminals(monkeypatch):
    from dassl.engine.progress import on_terminal

    monkeypatch.setattr("sys.stdout", type("Logger", (), {"write": print, "flush": print})())
    assert not on_terminal()
