"""Tuning the context of a prompt for each test image, without labels.

TPT: Shu et al., "Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models",
NeurIPS 2022. C-TPT: Yoon et al., "C-TPT: Calibrated Test-Time Prompt Tuning for Vision-Language
Models via Text Feature Dispersion", ICLR 2024. O-TPT: Sharifdeen et al., "O-TPT: Orthogonality
Constraints for Calibrating Test-time Prompt Tuning in Vision-Language Models", CVPR 2025.

All of them take one step from the same context for every image. So the text features and their
graph are the same for all images: they are encoded once, and an image costs one backward pass
through that graph and one forward pass with its own context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Term = Callable[[Tensor], Tensor]


def confident_logits(logits: Tensor, count: int) -> Tensor:
    """The logits [B, count, K] of each image's views with the least entropy, out of [B, V, K]."""
    log_probs = logits.detach().log_softmax(dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(dim=-1)  # [B, V]
    chosen = entropy.argsort(dim=-1, stable=True)[:, :count]
    return logits.gather(1, chosen[..., None].expand(-1, -1, logits.shape[-1]))


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy [B] of the mean over views of the probabilities of logits [B, V, K]."""
    log_mean = logits.log_softmax(dim=-1).logsumexp(dim=1) - math.log(logits.shape[1])
    # A probability of exactly 0 has no entropy, and its logarithm must not make a NaN of it.
    log_mean = log_mean.clamp(min=torch.finfo(log_mean.dtype).min)
    return -(log_mean.exp() * log_mean).sum(dim=-1)


def dispersion(text: Tensor) -> Tensor:
    """Mean distance [...] of normalised text features [..., K, E] from their centre (C-TPT)."""
    return (text - text.mean(dim=-2, keepdim=True)).norm(dim=-1).mean(dim=-1)


def orthogonality(text: Tensor) -> Tensor:
    """Mean over classes of ``|g_k| - 1``, g_k the cosines of class k with all classes (O-TPT).

    The published code reflects every row g_k onto ``|g_k| e_k``, subtracts the identity and takes
    the mean norm of the rows, in a tensor [K, K, K]. That reflection is exact, so this is the same
    number; it is 0 when all text features [..., K, E] are orthogonal.
    """
    return (text @ text.transpose(-1, -2)).norm(dim=-1).mean(dim=-1) - 1


def first_gradients(
    context: Tensor,
    text: Tensor,
    views: Tensor,
    scale: Tensor,
    confident: int,
    term: Term | None = None,
) -> Tensor:
    """Gradients [B, M, d] of each image's loss in the context that all of them start from.

    Each image's gradient passes the graph times a power of two that brings it near 1, so that half
    precision neither loses nor overflows it.

    Args:
        context: [M, d], which requires a gradient.
        text: Its normalised text features [K, E], with the graph that leads to the context; the
            graph is kept.
        views: Normalised features [B, V, E] of the views of B images.
        scale: Of the logits.
        confident: How many views count, those with the least entropy.
        term: Added to the loss, a function of text features [B, K, E] with values [B].
    """
    own = text.detach().expand(len(views), -1, -1).requires_grad_()  # [B, K, E]
    with torch.enable_grad(), torch.autocast(text.device.type, enabled=False):
        logits = scale * views @ own.transpose(-1, -2)  # [B, V, K]
        loss = marginal_entropy(confident_logits(logits, confident))
        if term is not None:
            loss = loss + term(own)
        (outer,) = torch.autograd.grad(loss.sum(), own)
    largest = outer.abs().amax(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(outer.dtype).tiny)
    exponent = largest.log2().ceil()
    outer = torch.ldexp(outer, -exponent)
    (inner,) = torch.autograd.grad(text, context, outer, retain_graph=True, is_grads_batched=True)
    return torch.ldexp(inner.float(), exponent)


def first_step(
    context: Tensor,
    gradients: Tensor,
    make_optimizer: Callable[[Sequence[Tensor]], torch.optim.Optimizer],
) -> Tensor:
    """Contexts [B, M, d] after one step of a fresh optimiser from the same context [M, d].

    An optimiser without a norm over all parameters, such as AdamW, steps every image as if it were
    alone. An image whose gradient is not finite keeps the context, as a gradient scaler would.
    """
    start = context.detach().float().expand_as(gradients)
    tuned = torch.nn.Parameter(start.clone())
    finite = gradients.isfinite().flatten(1).all(dim=1)[:, None, None]
    tuned.grad = gradients.where(finite, 0)
    make_optimizer([tuned]).step()
    return torch.where(finite, tuned.detach(), start)
