"""What holds for every method: gradients, precisions, twins, checkpoints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from dassl.engine import TRAINER_REGISTRY

from coop_cmp.errors import UserError
from coop_cmp.trainers.cmp import CMP
from tests.conftest import ROOT
from tests.predict.test_predict import SMALL
from tests.trainers.conftest import METHODS, steps
from tests.trainers.test_devices import traced_step


@pytest.mark.parametrize("model", ["TinyCLIP", "TinyResNet"])
@pytest.mark.parametrize("method", METHODS)
def test_only_what_is_learned_gets_a_gradient_and_all_of_it_does(build, method, model):
    if (method, model) == ("MaPLe", "TinyResNet"):
        return
    trainer = build(method, model=model)
    learned = {id(p) for p in trainer.learner.parameters()}
    steps(trainer, 2)  # CoCoOp's first layer may start behind closed ReLUs
    for name, parameter in trainer.model.named_parameters():
        is_scale = name.endswith("logit_scale")
        assert (parameter.grad is not None) == (id(parameter) in learned and not is_scale), name
    assert trainer.trainable == sum(
        p.numel() for p in trainer.learner.parameters() if p.requires_grad
    )


@pytest.mark.parametrize("method", METHODS)
def test_lambda_zero_trains_and_predicts_bit_for_bit_as_the_baseline(run, method, tmp_path):
    options, learned = (*SMALL.get(method, ()), "TRAIN.PRINT_FREQ", "1"), []
    plain, _ = run("plain", *options, trainer=method)
    twin, said = run("twin", *options, "TRAINER.CMP.LAMBDA", "0.0", trainer=f"{method}_CMP")
    assert " loss_cmp 0.0000 " in said
    assert (plain == twin).all()
    for name in ("plain", "twin"):
        (path,) = (tmp_path / name).glob("*/model.pth.tar-3")
        learned.append(torch.load(path, weights_only=True)["state_dict"])
    for name, value in learned[0].items():
        assert torch.equal(value, learned[1][name]), name


@pytest.mark.parametrize("method", METHODS)
def test_the_penalty_changes_the_training_and_is_reported(build, method):
    plain, twin = build(method), build(f"{method}_CMP", "TRAINER.CMP.LAMBDA", 0.5)
    (theirs, *_), (ours, *_) = steps(plain), steps(twin)
    assert ours["loss"] == pytest.approx(theirs["loss"] + ours["loss_cmp"], rel=1e-5)
    assert ours["loss_cmp"] == pytest.approx(0.5 * ours["cmp"])
    assert ours["cmp"] > 0
    assert any(
        not torch.equal(value, twin.learner.state_dict()[name])
        for name, value in plain.learner.state_dict().items()
    )


@pytest.mark.parametrize("precision", ["amp", "fp16"])
@pytest.mark.parametrize("method", METHODS)
def test_lower_precision_trains_with_finite_numbers_near_those_of_single(build, method, precision):
    reports = {}
    for prec in ("fp32", precision):
        trainer = build(
            f"{method}_CMP", f"TRAINER.{method.upper()}.PREC", prec, "TRAINER.CMP.LAMBDA", 0.5
        )
        reports[prec] = steps(trainer)
        assert all(torch.isfinite(p).all() for p in trainer.learner.parameters())
        assert {p.dtype for p in trainer.learner.parameters()} == {torch.float32}
        assert trainer.model_inference(trainer.test_loader[0]["img"]).dtype == torch.float32
    assert reports[precision][0]["loss"] == pytest.approx(reports["fp32"][0]["loss"], rel=0.1)
    assert reports[precision][0].keys() == reports["fp32"][0].keys()


@pytest.mark.parametrize("method", METHODS[:-1])
def test_prompts_can_be_kept_in_half_precision_as_the_coop_codebase_does(build, method):
    half = (f"TRAINER.{method.upper()}.PREC", "fp16", "MODEL.LEARNABLE_DTYPE", "model")
    trainer, single = build(f"{method}_CMP", *half), build(f"{method}_CMP")
    assert steps(trainer)[0]["loss"] == pytest.approx(steps(single)[0]["loss"], rel=0.02)
    assert {p.dtype for p in trainer.learner.parameters()} == {torch.float16}
    assert all(p.isfinite().all() for p in trainer.learner.parameters())
    assert trainer.model_inference(trainer.test_loader[0]["img"]).dtype == torch.float32
    traced = traced_step(build(f"{method}_CMP", *half))
    assert {value.device.type for value in traced.values()} == {"cuda"}


@pytest.mark.parametrize("method", METHODS)
def test_what_was_learned_on_a_hundred_classes_serves_other_class_lists(build, method, tmp_path):
    source = build(method, classnames=[f"thing {i}" for i in range(100)])
    steps(source)
    source.save_model(0, str(tmp_path))
    for count in (10, 37, 200):
        target = build(method, classnames=[f"target {i}" for i in range(count)])
        target.load_model(str(tmp_path))
        for name, value in source.learner.state_dict().items():
            assert torch.equal(target.learner.state_dict()[name], value)
        assert target.model(target.test_loader[0]["img"]).shape == (8, count)
        target.evaluator.evaluate = lambda: {"accuracy": 0.0}
        target.test()


@pytest.mark.parametrize("method", METHODS)
def test_a_checkpoint_holds_what_was_learned_and_nothing_of_the_classes(build, method, tmp_path):
    trainer = build(method)
    trainer.save_model(0, str(tmp_path))
    (path,) = tmp_path.glob("*/model.pth.tar-1")
    stored = torch.load(path, weights_only=True)["state_dict"]
    learned = {name for name, _ in trainer.learner.named_parameters()}
    assert set(stored) == learned


UPSTREAM = {
    "CoOp": ("prompt_learner", "", []),
    "CoCoOp": ("prompt_learner", "", []),
    "KgCoOp": ("prompt_learner", "", ["bias_vectors", "meta_net.linear1.weight"]),
    "ProDA": ("prompt_learner", "", ["nc_token_prefix", "nc_token_suffix"]),
    "MaPLe": ("MultiModalPromptLearner", "prompt_learner.", ["visual.proj", "logit_scale"]),
}


@pytest.mark.parametrize("method", UPSTREAM)
def test_checkpoints_of_the_methods_own_codebases_load(build, method, tmp_path):
    """They hold buffers of their class list, modules without use or even all of CLIP."""
    folder, prefix, extra = UPSTREAM[method]
    trainer = build(method)
    learned = {k: torch.randn_like(v).half() for k, v in trainer.learner.state_dict().items()}
    state = {prefix + name: value for name, value in learned.items()}
    state |= {
        prefix + "token_prefix": torch.randn(7, 1, 32),
        prefix + "token_suffix": torch.ones(7, 9),
    }
    state |= {name: torch.ones(3) for name in extra}
    (tmp_path / folder).mkdir()
    torch.save({"state_dict": state, "epoch": 5}, tmp_path / folder / "model.pth.tar-5")
    trainer.load_model(str(tmp_path), epoch=5)
    for name, value in learned.items():
        assert torch.equal(trainer.learner.state_dict()[name], value.float())


def test_a_checkpoint_of_another_method_or_size_is_refused(build, tmp_path):
    build("CoCoOp").save_model(0, str(tmp_path))
    with pytest.raises(UserError, match=r"meta_net\.linear1\.weight is \[2, 32\], expected absent"):
        build("CoOp").load_model(str(tmp_path))
    with pytest.raises(UserError, match=r"ctx is \[16, 32\], expected \[5, 32\]"):
        build("CoCoOp", "TRAINER.COCOOP.N_CTX", 5).load_model(str(tmp_path))
    with pytest.raises(UserError, match=r"no model at .*check --model-dir"):
        build("CoOp").load_model(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_registered_subclass_with_the_penalty(method):
    parent, baseline = TRAINER_REGISTRY.get(f"{method}_CMP").__bases__
    assert (parent, baseline.__name__) == (CMP, method)


@pytest.mark.parametrize("name", ["KgCoOp_CMP", "ProDA_CMP", "KgCoOp_Brier", "CoOp_Focal"])
def test_what_is_logged_adds_up_to_the_loss(build, name):
    for report in steps(build(name, "TRAINER.CMP.LAMBDA", 10.0)):
        terms = [value for key, value in report.items() if key.startswith("loss_")]
        assert report["loss"] == pytest.approx(sum(terms), rel=1e-5)
    replaced = name.endswith(("Brier", "Focal"))
    assert ("loss_ce" in report) == (not replaced and "ProDA" not in name)


def files_of_a_step(trainer: Any) -> set[str]:
    """The files of this project whose functions run in the second training step."""
    seen: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            seen.add(str(Path(frame.f_code.co_filename).relative_to(ROOT)))

    steps(trainer, 1)  # what is made once is made
    sys.setprofile(note)
    try:
        trainer.forward_backward(trainer.train_loader_x[1])
    finally:
        sys.setprofile(None)
    return seen


def test_a_step_with_the_penalty_touches_two_files_more(build):
    plain, penalised = files_of_a_step(build("CoOp")), files_of_a_step(build("CoOp_CMP"))
    assert plain >= {"trainers/base.py", "trainers/coop.py"}
    assert penalised - plain == {"trainers/cmp.py", "coop_cmp/losses/cmp.py"}
