"""TCPT: Sharifdeen et al., "Towards Calibrating Prompt Tuning of Vision-Language Models",
CVPR 2026.

A margin regulariser on the logits, and matching of the first two moments of the text features with
those of zero-shot CLIP.
"""

from __future__ import annotations

import torch
from torch import Tensor

from coop_cmp.errors import UserError
from coop_cmp.losses.checks import check_number, wide


def tcpt_loss(
    logits: Tensor,
    labels: Tensor,
    text_features: tuple[Tensor, Tensor],
    alpha: float = 0.1,
    beta: float = 0.01,
    moments: float = 5.0,
) -> Tensor:
    """``-alpha mean(m) + beta var(m) + moments * M``, see :func:`margins`, :func:`moment_distance`.

    Mean and variance (of the population: 0 for one sample) are over the batch. The mean margin is
    rewarded without bound; only ``beta`` holds it back. ``text_features`` are the learned and the
    zero-shot ones, normalised, as :func:`moment_distance` takes them.
    """
    for name, value in (("alpha", alpha), ("beta", beta), ("moments", moments)):
        check_number(name, value)
    logits, labels = wide(logits, labels)
    margin = margins(logits, labels)
    spread = margin.var(correction=0)
    return beta * spread - alpha * margin.mean() + moments * moment_distance(*text_features)


def margins(logits: Tensor, labels: Tensor) -> Tensor:
    """``z_y - max over j other than y of z_j``, shape [N]."""
    if logits.shape[1] < 2:
        raise UserError("TCPT needs at least two classes")
    true = labels[:, None]
    others = logits.scatter(1, true, -torch.inf).amax(1)
    return logits.gather(1, true).squeeze(1) - others


def moment_distance(learned: Tensor, zero_shot: Tensor) -> Tensor:
    """``|mu - mu0|^2 + |S - S0|_F^2`` of mean and population covariance over the classes.

    Args:
        learned: Shape [C, E]; or [N, C, E], then the mean over N.
        zero_shot: Shape [C, E].
    """
    if learned.shape[-2:] != zero_shot.shape:
        raise UserError(
            f"text features must be [C, E] alike, got {tuple(learned.shape)} learned and "
            f"{tuple(zero_shot.shape)} zero-shot"
        )
    with torch.autocast(learned.device.type, enabled=False):
        (mean, covariance), (mean0, covariance0) = map(_moments, (learned, zero_shot.detach()))
        return (
            (mean - mean0).square().sum(-1) + (covariance - covariance0).square().sum((-2, -1))
        ).mean()


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [..., E] and covariance [..., E, E] over the classes."""
    features = features if features.dtype == torch.float64 else features.float()
    mean = features.mean(-2)
    centred = features - mean.unsqueeze(-2)
    return mean, centred.transpose(-2, -1) @ centred / features.shape[-2]
