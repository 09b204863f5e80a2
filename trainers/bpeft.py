"""B-PEFT on prompts: Pandey, Pyakurel and Yu, "Be Confident in What You Know: Bayesian Parameter
Efficient Fine-Tuning of Vision Foundation Models", NeurIPS 2024.

The context of CoOp is trained with evidential losses (coop_cmp/evidence.py), the base rates of the
classes are adjusted, and an ensemble is averaged. The authors tune visual prompts of a ViT with a
linear head; what follows is not published and inferred here:

- the head on CLIP: outputs are cosines minus their mean over the classes, times a learned scale
  that starts at a quarter of CLIP's, plus a learned offset, within [-10, 10];
- the weight W of the adjustment is the number of classes (theirs is 100 for any number);
- the ensemble: the abstract names one, the public code has none. Members are trained side by side
  from their own random contexts, and their adjusted probabilities are averaged. All of them have
  the weight of the authors' example; a spread of weights is a list of different ones.
"""

from __future__ import annotations

from typing import Any

import torch
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from coop_cmp.clip import LoadedCLIP, context_layout
from coop_cmp.config import PRECISIONS, choice, declare_trainer, integer, number, several
from coop_cmp.errors import UserError

from .base import PromptedCLIP, PromptTrainer
from .evidence import correct_evidence, incorrect_evidence, joined_logits, likelihood_loss

declare_trainer(
    "BPEFT",
    N_CTX=integer(16, "context vectors of each member", low=1, high=75),
    KL_WEIGHTS=several(
        [0.1, 0.1, 0.1, 0.1, 0.1],
        number(0.0, "", low=0),
        "weight of the incorrect-evidence term of each member; one: no ensemble",
    ),
    BASE_RATE=number(1.5, "exponent of the base-rate adjustment; 0: none", low=0, high=3),
    BASE_WEIGHT=number(0.0, "weight of the adjustment; 0: the number of classes", low=0),
    PREC=choice("fp16", PRECISIONS, "precision"),
)

LARGEST_OUTPUT = 10.0
SCALE_SHARE = 1 / 4  # of CLIP's own, to begin with


class EvidentialPromptLearner(nn.Module):
    """Contexts [G, M, d] of G members, with a scale and an offset of their outputs for each.

    The logarithm of the scale is learned, which keeps it positive and moves it at CoOp's rates.
    """

    def __init__(self, node: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        super().__init__()
        members, width = len(node.KL_WEIGHTS), clip.model.ln_final.weight.shape[0]
        self.ctx = nn.Parameter(nn.init.normal_(torch.empty(members, node.N_CTX, width), std=0.02))
        start = clip.model.logit_scale.detach().float() + torch.tensor(SCALE_SHARE).log()
        self.log_scale = nn.Parameter(start.expand(members).clone())
        self.offset = nn.Parameter(torch.zeros(members))
        self.layout = context_layout(classnames, clip.tokenizer, node.N_CTX)


class EvidentialCLIP(PromptedCLIP):
    """CLIP whose outputs are evidence, from one context or from several."""

    prompt_learner: EvidentialPromptLearner
    kl_weights: Tensor

    def __init__(self, cfg: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        super().__init__(cfg, clip)
        self.node = cfg.TRAINER.BPEFT
        self.prompt_learner = EvidentialPromptLearner(self.node, clip, classnames)
        self.register_buffer("kl_weights", torch.tensor(self.node.KL_WEIGHTS)[:, None])  # [G, 1]

    def encode_text(self) -> Tensor:
        """Text features [G, C, E] of all members."""
        return self.text_encoder(self.prompt_learner.layout, self.prompt_learner.ctx)

    def outputs(self, image_features: Tensor) -> Tensor:
        """Logarithms of evidence [G, B, C] in single precision for features [B, E]."""
        text = self.fixed_text if self.fixed_text is not None else self.text_features()
        learner = self.prompt_learner
        with torch.autocast(image_features.device.type, enabled=False):
            cosines = image_features @ text.transpose(-1, -2)
            relative = cosines - cosines.mean(dim=-1, keepdim=True)
            scale = learner.log_scale.float().exp()[:, None, None]
            outputs = scale * relative + learner.offset.float()[:, None, None]
        return outputs.clamp(-LARGEST_OUTPUT, LARGEST_OUTPUT)

    def classify(self, image_features: Tensor) -> Tensor:
        """Logits [B, C] that hold probabilities and vacuity."""
        outputs = self.outputs(image_features)
        return joined_logits(outputs, self.node.BASE_RATE, self.node.BASE_WEIGHT)

    def losses(self, image_features: Tensor, label: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The three terms, each the sum over members of the mean over the batch."""
        outputs = self.outputs(image_features)  # [G, B, C]
        labels = label.expand(len(outputs), -1)
        divergence = self.kl_weights * incorrect_evidence(outputs, labels)
        terms = {
            "loss_likelihood": likelihood_loss(outputs, labels),
            "loss_incorrect": divergence,
            "loss_correct": correct_evidence(outputs, labels),
        }
        sums = {name: term.mean(dim=1).sum() for name, term in terms.items()}
        return joined_logits(outputs.detach()), sums


@TRAINER_REGISTRY.register()
class BPEFT(PromptTrainer):
    """Bayesian parameter-efficient fine-tuning of prompts."""

    node = "BPEFT"
    cross_entropy = False

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)
        if not cfg.TRAINER.BPEFT.KL_WEIGHTS:
            raise UserError("TRAINER.BPEFT.KL_WEIGHTS must name at least one member, got none")

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return EvidentialCLIP(self.cfg, clip, classnames)
