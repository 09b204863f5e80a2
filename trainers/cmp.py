"""The confidence misalignment penalty: Khan and Syed, "Technical report on logit redistribution for
better domain generalization in low-shot classification with foundation models", 2025.

Every method has a subclass that adds the penalty to its loss: ``class CoOp_CMP(CMP, CoOp)``.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from coop_cmp.losses import cmp_loss

from .base import PromptTrainer


class CMP(PromptTrainer):
    """Adds lambda * L_CMP to the loss of the method that follows it in the bases."""

    term_loss = "loss_cmp"

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        step, settings = self.compute_losses(batch), self.cfg.TRAINER.CMP
        logits = self.penalised_logits(step)
        penalty = cmp_loss(logits, step.label, settings.FORM, settings.EPS, validate=False)
        step.losses["loss_cmp"] = settings.LAMBDA * penalty
        return {**self.take_step(step), "cmp": penalty.detach()}

    def facts(self, split: str | None = None) -> dict[str, Any]:
        facts = super().facts(split)
        if facts["fit"].get("wrong") == 0:
            facts["notes"].append("no training sample was misclassified: the penalty was always 0")
        return facts
