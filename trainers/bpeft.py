"""B-PEFT on prompts: Pandey, Pyakurel and Yu, "Be Confident in What You Know: Bayesian Parameter
Efficient Fine-Tuning of Vision Foundation Models", NeurIPS 2024.

The context of CoOp is trained with evidential losses, the base rates of the classes are adjusted,
and an ensemble is averaged. An output o_k is the logarithm of the evidence e_k for class k, and
alpha_k = e_k + 1 are the parameters of a Dirichlet distribution of strength S, their sum. The
prediction is its mean alpha / S; the vacuity K / S, from 0 to 1, says how little evidence there is
at all. The correct-evidence term is from Pandey and Yu, "Learn to Accumulate Evidence from All
Training Samples", ICML 2023.

The authors tune visual prompts of a ViT with a linear head; what follows is not published and
inferred here:

- the head on CLIP: outputs are cosines minus their mean over the classes, times a learned scale
  that starts at a quarter of CLIP's, plus a learned offset, within [-10, 10];
- the weight W of the adjustment is the number of classes (theirs is 100 for any number);
- the ensemble: the abstract names one, the public code has none. Members are trained side by side
  from their own random contexts, and their adjusted probabilities are averaged. All of them have
  the weight of the authors' example; a spread of weights is a list of different ones.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from coop_cmp.clip import LoadedCLIP, context_layout, random_context
from coop_cmp.config import PRECISIONS, choice, declare_trainer, integer, number, several
from coop_cmp.errors import UserError

from .base import PromptedCLIP, PromptTrainer, Step

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


def strengths(outputs: Tensor) -> Tensor:
    """The parameters alpha [..., K] for outputs [..., K]."""
    return outputs.exp() + 1


def vacuity(outputs: Tensor) -> Tensor:
    """The share [...] of the distribution that no evidence supports, for outputs [..., K]."""
    return outputs.shape[-1] / strengths(outputs).sum(dim=-1)


def likelihood_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Negative log of the type-II likelihood ``log S - log alpha_y`` [...].

    Args:
        outputs: [..., K]
        labels: Class indices [...].
    """
    alpha = strengths(outputs)
    true = alpha.gather(-1, labels[..., None])[..., 0]
    return alpha.sum(dim=-1).log() - true.log()


def incorrect_evidence(outputs: Tensor, labels: Tensor) -> Tensor:
    """Divergence [...] of the distribution without the true class's evidence from the flat one.

    ``KL(Dir(a) || Dir(1))`` with a = 1 + e, but a_y = 1, in closed form.
    """
    a = strengths(outputs).scatter(-1, labels[..., None], 1.0)
    total = a.sum(dim=-1, keepdim=True)
    lead = total[..., 0].lgamma() - math.lgamma(a.shape[-1]) - a.lgamma().sum(dim=-1)
    return lead + ((a - 1) * (a.digamma() - total.digamma())).sum(dim=-1)


def correct_evidence(outputs: Tensor, labels: Tensor) -> Tensor:
    """A pull [...] towards more evidence for the true class, where there is less than 1 of it.

    ``-u o_y`` if o_y <= 0, with the vacuity u as a constant. Without it such samples hardly learn:
    the gradient of the likelihood vanishes with the evidence.
    """
    true = outputs.gather(-1, labels[..., None])[..., 0]
    return -vacuity(outputs).detach() * true.clamp(max=0)


def predict(outputs: Tensor, exponent: float = 0.0, weight: float = 0.0) -> Tensor:
    """Probabilities [..., K] for outputs [..., K].

    With an exponent, the base rate of every class is no longer 1 / K: it follows the evidence
    itself, ``alpha_k = e_k + W ((e_k - e_min) / e_min)^m``. Larger evidence stays larger, so that
    the most probable class is the same.

    Args:
        outputs: Logarithms of evidence.
        exponent: m; 0: no adjustment.
        weight: W; 0: the number of classes.
    """
    if not exponent:
        alpha = strengths(outputs)
    else:
        least = outputs.amin(dim=-1, keepdim=True)
        rate = (outputs - least).expm1() ** exponent
        alpha = outputs.exp() + (weight or outputs.shape[-1]) * rate
    return alpha / alpha.sum(dim=-1, keepdim=True)


def joined_logits(outputs: Tensor, exponent: float = 0.0, weight: float = 0.0) -> Tensor:
    """Logits [B, K] of an ensemble with outputs [G, B, K].

    Their softmax is the mean of the members' predictions and ``K / sum of exp(logits)`` the mean of
    their vacuities, so that a file of logits holds both; see `vacuity_of_logits`.
    """
    log_probs = predict(outputs, exponent, weight).mean(dim=0).clamp(min=1e-38).log()
    return log_probs - (vacuity(outputs).mean(dim=0, keepdim=True).t() / outputs.shape[-1]).log()


def vacuity_of_logits(logits: Tensor) -> Tensor:
    """The vacuity [B] that `joined_logits` [B, K] hold: a score for being out of distribution."""
    return logits.shape[-1] * torch.exp(-logits.logsumexp(dim=-1))


class EvidentialPromptLearner(nn.Module):
    """Contexts [G, M, d] of G members, with a scale and an offset of their outputs for each.

    The logarithm of the scale is learned, which keeps it positive and moves it at CoOp's rates.
    """

    def __init__(self, node: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        super().__init__()
        members = len(node.KL_WEIGHTS)
        self.ctx = nn.Parameter(random_context(clip, members, node.N_CTX))
        start = clip.model.logit_scale.detach().float() + torch.tensor(SCALE_SHARE).log()
        self.log_scale = nn.Parameter(start.repeat(members))
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

    def outputs(self, image_features: Tensor, text: Tensor) -> Tensor:
        """Logarithms of evidence [G, B, C] for features [B, E] and [G, C, E]."""
        learner = self.prompt_learner
        with torch.autocast(image_features.device.type, enabled=False):
            cosines = image_features @ text.transpose(-1, -2)
            relative = cosines - cosines.mean(dim=-1, keepdim=True)
            scale = learner.log_scale.float().exp()[:, None, None]
            outputs = scale * relative + learner.offset.float()[:, None, None]
        return outputs.clamp(-LARGEST_OUTPUT, LARGEST_OUTPUT)

    def classify(self, image_features: Tensor) -> Tensor:
        """Logits [B, C] that hold probabilities and vacuity."""
        outputs = self.outputs(image_features, self.text_for(image_features))
        return joined_logits(outputs, self.node.BASE_RATE, self.node.BASE_WEIGHT)

    def losses(self, image_features: Tensor, label: Tensor) -> Step:
        """The three terms, each the sum over members of the mean over the batch."""
        text = self.text_for(image_features)
        outputs = self.outputs(image_features, text)  # [G, B, C]
        labels = label.expand(len(outputs), -1)
        divergence = self.kl_weights * incorrect_evidence(outputs, labels)
        terms = {
            "loss_likelihood": likelihood_loss(outputs, labels),
            "loss_incorrect": divergence,
            "loss_correct": correct_evidence(outputs, labels),
        }
        losses = {name: term.mean(dim=1).sum() for name, term in terms.items()}
        return Step(joined_logits(outputs.detach()), label, losses, image_features, text)


@TRAINER_REGISTRY.register()
class BPEFT(PromptTrainer):
    """Bayesian parameter-efficient fine-tuning of prompts."""

    node = "BPEFT"
    cross_entropy = None

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)
        if not cfg.TRAINER.BPEFT.KL_WEIGHTS:
            raise UserError("TRAINER.BPEFT.KL_WEIGHTS must name at least one member, got none")
        if cfg.MODEL.SCORES == "sigmoid":
            raise UserError("BPEFT's probabilities are shares of evidence: MODEL.SCORES softmax")

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return EvidentialCLIP(self.cfg, clip, classnames)
