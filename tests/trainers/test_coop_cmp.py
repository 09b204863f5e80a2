"""CoOp and CoOp_CMP, trained by train.py on the embedded data set."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from coop_cmp import cli
from tests.conftest import ROOT

OPTIONS = (
    "MODEL.BACKBONE.NAME", "TinyCLIP", "OPTIM.MAX_EPOCH", "20", "DATASET.NUM_SHOTS", "1",
    "TEST.NO_TEST", "True", "TRAIN.PRINT_FREQ", "1",
)  # fmt: skip


@pytest.fixture
def prompts(tiny_weights, tmp_path, monkeypatch, capsys):
    """Twenty steps of a trainer: the prompt vectors it learned, and what it printed."""

    def learn(trainer: str, *options: str) -> tuple[torch.Tensor, str]:
        out = tmp_path / "-".join([trainer, *options[-1:]])
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", sys.stdout)  # the logger replaces it
            code = cli.main(
                [
                    *("train", "--root", str(tmp_path), "--seed", "1", "--trainer", trainer),
                    *("--dataset-config-file", str(ROOT / "configs/datasets/digits.yaml")),
                    *("--config-file", str(ROOT / "tests/tiny.yaml")),
                    *("--output-dir", str(out), *OPTIONS, *options),
                ]
            )
        printed = capsys.readouterr().out
        assert code == 0
        assert printed.count("batch [1/1]") == 20
        checkpoint = torch.load(out / "prompt_learner" / "model.pth.tar-20", weights_only=True)
        return checkpoint["state_dict"]["ctx"], printed

    return learn


def losses(printed: str, name: str) -> list[str]:
    return re.findall(rf" {name} (\d+\.\d+) ", printed)


def test_lambda_zero_learns_the_prompts_of_the_baseline_bit_for_bit(prompts):
    baseline, printed = prompts("CoOp")
    assert not losses(printed, "loss_cmp")
    same, printed_same = prompts("CoOp_CMP", "TRAINER.CMP.LAMBDA", "0.0")
    assert torch.equal(same, baseline)
    assert losses(printed_same, "loss") == losses(printed, "loss")
    assert losses(printed_same, "loss_cmp") == ["0.0000"] * 20
    other, printed_other = prompts("CoOp_CMP", "TRAINER.CMP.LAMBDA", "0.5")
    assert not torch.equal(other, baseline)
    # The first batch is the same for all three: its loss is cross-entropy + the weighted penalty.
    first = {name: float(losses(printed_other, name)[0]) for name in ("loss", "loss_cmp")}
    plain = float(losses(printed, "loss")[0])
    assert first["loss"] == pytest.approx(plain + first["loss_cmp"], abs=2e-4)
    assert first["loss_cmp"] > 0
