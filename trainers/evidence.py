"""Evidential classification: outputs are evidence for classes, and a Dirichlet distribution.

B-PEFT: Pandey, Pyakurel and Yu, "Be Confident in What You Know: Bayesian Parameter Efficient
Fine-Tuning of Vision Foundation Models", NeurIPS 2024. The correct-evidence term is from Pandey and
Yu, "Learn to Accumulate Evidence from All Training Samples", ICML 2023.

An output o_k is the logarithm of the evidence e_k for class k, and alpha_k = e_k + 1 are the
parameters of a Dirichlet distribution of strength S, their sum. The prediction is its mean
alpha / S; the vacuity K / S, from 0 to 1, says how little evidence there is at all.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


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
