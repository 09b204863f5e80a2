"""Every method with every term: what is added, what terms learn of zero-shot CLIP, refusals."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from dassl.engine import TrainerX

from coop_cmp.clip import clean, template_of
from coop_cmp.errors import UserError
from coop_cmp.losses import function_of
from coop_cmp.losses.names import TERMS
from coop_cmp.trainers.terms import ZeroShotCLIP, with_term
from coop_cmp.trainers.zeroshot import ZeroshotCLIP
from tests.trainers.conftest import CLASSES, METHODS, steps

NEEDY = [name for name, term in TERMS.items() if term.needs]
ADDED = [name for name, term in TERMS.items() if not term.replaces]
CLASS_LOGITS = [method for method in METHODS if method != "ProDA"]  # ProDA's loss is of a bound


def plain_zero_shot(trainer, image: torch.Tensor, clip) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [B, C] and text features [C, E] of a freshly loaded model."""
    texts = [template_of(trainer.cfg).format(clean(name)) for name in CLASSES]
    with torch.no_grad():
        text = F.normalize(clip.model.encode_text(clip.tokenizer(texts)), dim=-1)
        visual = F.normalize(clip.model.encode_image(image), dim=-1)
    return clip.model.logit_scale.exp() * visual @ text.t(), text


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_with_every_term(build, method, term):
    trainer = build(f"{method}_{term}")
    before = {k: v.clone() for k, v in trainer.learner.state_dict().items()}
    report = steps(trainer, 2)[1]
    assert f"loss_{term.lower()}" in report
    assert all(torch.tensor(value).isfinite() for value in report.values())
    after = trainer.learner.state_dict()
    assert any(not torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("term", ADDED)
def test_weight_zero_trains_the_very_same_weights(build, term):
    node = TERMS[term].node
    plain, twin = build("CoOp"), build(f"CoOp_{term}", f"TRAINER.{node}.LAMBDA", 0.0)
    reports, same = steps(plain), steps(twin)
    assert [r["loss"] for r in reports] == [r["loss"] for r in same]
    for name, value in plain.learner.state_dict().items():
        assert torch.equal(value, twin.learner.state_dict()[name]), name


@pytest.mark.parametrize("method", METHODS)
def test_zero_shot_logits_and_features_stay_those_of_the_loaded_model(build, tiny_clip, method):
    trainer = build(f"{method}_ZSPenalty")
    steps(trainer)
    batch = trainer.train_loader_x[2]
    logits, text = plain_zero_shot(trainer, batch["img"], tiny_clip)
    step = trainer.compute_losses(batch)
    zero_shot = trainer.needed("zero_shot_logits", step, batch)
    torch.testing.assert_close(zero_shot, logits, rtol=1e-4, atol=1e-4)
    learned, fixed = trainer.needed("text_features", step, batch)
    torch.testing.assert_close(fixed, text, rtol=1e-4, atol=1e-5)
    assert learned.shape[-2:] == fixed.shape
    assert learned.requires_grad


@pytest.mark.parametrize("term", NEEDY)
@pytest.mark.parametrize("method", CLASS_LOGITS)
def test_the_loss_is_that_of_the_terms_function(build, tiny_clip, method, term):
    plain, twin = build(method), build(f"{method}_{term}")
    batch = twin.train_loader_x[0]
    zero_shot, text = plain_zero_shot(twin, batch["img"], tiny_clip)
    step = plain.compute_losses(batch)
    needed = zero_shot if term != "TCPT" else (step.text, text)
    value = function_of(term)(step.logits, batch["label"], needed).item()
    (theirs,), (ours,) = steps(plain, 1), steps(twin, 1)
    cross_entropy = F.cross_entropy(step.logits, batch["label"]).item()
    settings = TERMS[term].settings
    weighted = settings["LAMBDA"].default * value if settings else value
    assert ours[f"loss_{term.lower()}"] == pytest.approx(weighted, rel=1e-4, abs=1e-5)
    expected = theirs["loss"] + weighted - (0 if settings else cross_entropy)
    assert ours["loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("precision", ["amp", "fp16"])
@pytest.mark.parametrize("term", ["ZSPenalty", "TCPT"])
@pytest.mark.parametrize("method", METHODS)
def test_terms_that_compare_with_zero_shot_work_in_every_precision(build, method, term, precision):
    key = f"TRAINER.{method.upper()}.PREC"
    reports = {p: steps(build(f"{method}_{term}", key, p), 1)[0] for p in ("fp32", precision)}
    name = f"loss_{term.lower()}"
    assert reports[precision][name] == pytest.approx(reports["fp32"][name], rel=0.2, abs=0.02)


def test_a_reference_is_made_only_where_a_term_needs_it(build, monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(ZeroShotCLIP, "__init__", refuse)
    steps(build("CoOp_MbLS"), 1)


@pytest.mark.parametrize("term", ["CMP", "Focal", *NEEDY])
def test_contrastive_fine_tuning_has_no_logits_of_all_classes(build, term):
    with pytest.raises(UserError, match=rf"CLIPFT_{term}: .*use FT-CE"):
        build(f"CLIPFT_{term}", "TRAINER.CLIPFT.MODE", "FT-Contrastive")


@pytest.mark.parametrize("term", [name for name in TERMS if TERMS[name].settings])
def test_wrong_settings_are_refused_before_training(build, term):
    key = next(iter(TERMS[term].settings))
    with pytest.raises(UserError, match=rf"TRAINER\.{TERMS[term].node}\.{key} must be a number"):
        build(f"CoOp_{term}", f"TRAINER.{TERMS[term].node}.{key}", -1.0)


@pytest.mark.parametrize("method", ["CoOp", "ProDA", "CoCoOp"])
def test_the_classifier_is_stored_where_it_serves_all_images(build, method):
    trainer = build(method)
    steps(trainer, 1)
    trainer.evaluator.evaluate = lambda: {"accuracy": 0.0}
    trainer.test()
    stored = trainer.evaluator.facts.get("text_features")
    if method == "CoCoOp":
        assert stored is None
    else:
        torch.testing.assert_close(stored, trainer.model.text_features().detach())


def test_only_trainers_of_this_project_with_a_cross_entropy_take_a_term():
    with pytest.raises(UserError, match="ZeroshotCLIP trains with no cross-entropy"):
        with_term(ZeroshotCLIP, "CMP")
    with pytest.raises(UserError, match=r"TrainerX is no PromptTrainer; register coop_cmp\.plug"):
        with_term(TrainerX, "MbLS")
