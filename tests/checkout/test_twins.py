"""Trainers with a term: what they train, log and refuse."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from yacs.config import CfgNode

from coop_cmp import add_term_config, cmp_loss, plug
from coop_cmp.losses import focal_loss


class TinyCoOp:
    """What a prompt-learning trainer does, without Dassl: a frozen tower and a learnt context."""

    def __init__(self, cfg: CfgNode) -> None:
        self.check_cfg(cfg)
        self.cfg = cfg
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.text = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.image = copy.deepcopy(self.text)
        for tower in (self.text, self.image):
            tower.eval().requires_grad_(False)
        self.names = torch.randn(6, 3, 16)
        self.context = nn.Parameter(0.02 * torch.randn(1, 2, 16))
        self.optim = torch.optim.SGD([self.context], lr=0.1)

    def check_cfg(self, cfg: CfgNode) -> None:
        assert cfg.TRAINER.COOP.PREC == "fp32"

    def logits_of(self, images: torch.Tensor) -> torch.Tensor:
        prompts = torch.cat([self.context.expand(6, -1, -1), self.names], 1)
        texts = F.normalize(self.text(prompts)[:, -1], dim=1)
        return 10 * F.normalize(self.image(images)[:, 0], dim=1) @ texts.t()

    def forward_backward(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
        loss = F.cross_entropy(self.logits_of(batch["img"]), batch["label"])
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return {"loss": loss.item()}


def config(**cmp: object) -> CfgNode:
    cfg = CfgNode({"TRAINER": {"COOP": {"PREC": "fp32"}}})
    add_term_config(cfg, "CMP")
    cfg.TRAINER.CMP.update(cmp)
    return cfg


def train(trainer: TinyCoOp, steps: int = 20) -> list[dict[str, float]]:
    generator = torch.Generator().manual_seed(1)
    batches = [
        {
            "img": torch.randn(8, 4, 16, generator=generator),
            "label": torch.randint(6, (8,), generator=generator),
        }
        for _ in range(steps)
    ]
    return [trainer.forward_backward(batch) for batch in batches]


def test_lambda_zero_trains_bit_identically_to_the_baseline():
    baseline, twin = TinyCoOp(config()), plug(TinyCoOp, register=False)(config(LAMBDA=0.0))
    losses, twin_losses = train(baseline), train(twin)
    assert torch.equal(twin.context, baseline.context)
    assert [summary["loss"] for summary in twin_losses] == [summary["loss"] for summary in losses]
    assert all(summary["loss_cmp"] == 0 < summary["cmp"] for summary in twin_losses)


@pytest.mark.parametrize(
    ("cmp", "words"),
    [
        ({"LAMBDA": -1.0}, r"TRAINER.CMP.LAMBDA must be a number >= 0, got -1.0"),
        ({"LAMBDA": math.nan}, "got nan"),
        ({"FORM": "logs"}, 'TRAINER.CMP.FORM must be .* did you mean "log"'),
        ({"EPS": 0.0}, "TRAINER.CMP.EPS must be"),
    ],
)
def test_a_wrong_config_is_refused_before_training(cmp, words):
    with pytest.raises(ValueError, match=words):
        plug(TinyCoOp, register=False)(config(**cmp))


def test_the_baselines_own_check_and_a_missing_node_are_reported():
    twin = plug(TinyCoOp, register=False)
    cfg = config()
    cfg.TRAINER.COOP.PREC = "fp8"
    with pytest.raises(AssertionError):
        twin(cfg)
    with pytest.raises(ValueError, match=r"TRAINER.CMP.LAMBDA is missing: call .*add_term_config"):
        twin(CfgNode({"TRAINER": {"COOP": {"PREC": "fp32"}}}))


def test_the_config_node_has_the_documented_defaults_and_is_added_once():
    cfg = config(LAMBDA=0.7)
    add_term_config(cfg, "CMP")
    assert dict(cfg.TRAINER.CMP) == {"LAMBDA": 0.7, "FORM": "ratio", "EPS": 1e-10}
    assert config().TRAINER.CMP.LAMBDA == 0.01


def one_batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(8, 4, 16, generator=generator)
    return {"img": images, "label": torch.randint(6, (8,), generator=generator)}


def test_what_is_logged_adds_up_to_the_loss():
    twin, batch = plug(TinyCoOp, register=False)(config(LAMBDA=0.5)), one_batch()
    logits = twin.logits_of(batch["img"])
    summary = twin.forward_backward(batch)
    plain, penalty = (f(logits, batch["label"]).item() for f in (F.cross_entropy, cmp_loss))
    assert penalty > 0
    assert summary == pytest.approx(
        {"loss": plain + 0.5 * penalty, "loss_cmp": 0.5 * penalty, "cmp": penalty}
    )


def test_a_replaced_cross_entropy_is_logged_under_the_terms_name_alone():
    cfg, batch = config(), one_batch()
    add_term_config(cfg, "Focal")
    twin = plug(TinyCoOp, register=False, term="Focal")(cfg)
    expected = focal_loss(twin.logits_of(batch["img"]), batch["label"]).item()
    assert twin.forward_backward(batch) == pytest.approx({"loss": expected, "loss_focal": expected})


def test_a_term_that_needs_more_than_logits_asks_the_trainer():
    class Knowing(TinyCoOp):
        def zero_shot_logits(self, batch):
            return torch.zeros(len(batch["label"]), 6)

    cfg = config()
    add_term_config(cfg, "ZSPenalty")
    summary = plug(Knowing, register=False, term="ZSPenalty")(cfg).forward_backward(one_batch())
    assert summary["loss_zspenalty"] == pytest.approx(10 * summary["zspenalty"])


def test_plug_names_and_registers_the_twin():
    from dassl.engine import TRAINER_REGISTRY

    class FreshTrainer(TinyCoOp):
        pass

    twin = plug(FreshTrainer)
    assert (twin.__name__, twin.__mro__[1]) == ("FreshTrainer_CMP", FreshTrainer)
    assert TRAINER_REGISTRY.get("FreshTrainer_CMP") is twin
    with pytest.raises(ValueError, match="already carries a term"):
        plug(twin)
    with pytest.raises(ValueError, match="no forward_backward"):
        plug(dict)
    with pytest.raises(ValueError, match='no term "CMPP"; did you mean "CMP"'):
        plug(FreshTrainer, term="CMPP")
