"""Test-time prompt tuning as the papers write it: one image, one class, one view at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

RATE, DECAY, EPS = 5e-3, 0.01, 1e-8


def text_features(clip: Any, prompts: Tensor, context: Tensor) -> Tensor:
    """Normalised features [K, E] of whole token sequences [K, 77] with a context behind the start.

    The library's own transformer runs on all 77 tokens of every class.
    """
    embedded = clip.token_embedding(prompts)
    rows = [torch.cat([row[:1], context, row[1 + len(context) :]]) for row in embedded]
    x = clip.transformer(
        torch.stack(rows) + clip.positional_embedding, attn_mask=clip.attn_mask[:77, :77]
    )
    x = clip.ln_final(x)[range(len(prompts)), prompts.argmax(dim=1)] @ clip.text_projection
    return x / x.norm(dim=1, keepdim=True)


def entropy(probabilities: Tensor) -> Tensor:
    return -sum(p * torch.log(p) for p in probabilities)


def entropy_of_confident_mean(logits: Tensor, count: int) -> Tensor:
    """H of the mean prediction of the ``count`` views [V, K] with the least entropy."""
    probabilities = [row.softmax(0) for row in logits]
    order = sorted(range(len(logits)), key=lambda v: entropy(probabilities[v]).item())
    return entropy(sum(probabilities[v] for v in order[:count]) / count)


def spread(text: Tensor) -> Tensor:
    """C-TPT's average text feature dispersion."""
    centre = sum(text) / len(text)
    return sum(torch.sqrt(((t - centre) ** 2).sum()) for t in text) / len(text)


def reflected(text: Tensor) -> Tensor:
    """O-TPT as published: reflect each row of cosines onto its axis, subtract the identity.

    The mean norm of the rows of what remains, through a tensor with three class axes.
    """
    cosines = text @ text.t()
    eye = torch.eye(len(text), dtype=text.dtype)
    normals = cosines - cosines.norm(dim=1, keepdim=True) * eye  # [K, K]
    normals = normals / normals.norm(dim=1, keepdim=True)
    mirrors = eye - 2 * normals[:, :, None] * normals[:, None, :]  # [K, K, K]
    on_axes = (mirrors @ cosines[:, :, None])[..., 0]
    return (on_axes - eye).norm(dim=1).mean()


def tune(
    clip: Any,
    prompts: Tensor,
    start: Tensor,
    views: Tensor,
    scale: float,
    count: int,
    term: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The tuned context [M, d] of one image with views [V, E], and the logits [K] of view 0."""
    context = start.clone().requires_grad_()
    text = text_features(clip, prompts, context)
    loss = entropy_of_confident_mean(scale * views @ text.t(), count)
    if term is not None:
        loss = loss + term(text)
    (gradient,) = torch.autograd.grad(loss, context)
    # AdamW's first step: both running means are corrected to the gradient and its square.
    tuned = start - RATE * DECAY * start - RATE * gradient / (gradient.abs() + EPS)
    with torch.no_grad():
        return tuned, scale * text_features(clip, prompts, tuned) @ views[0]
