"""ProDA: Lu et al., "Prompt Distribution Learning", CVPR 2022.

Many prompts are learned at once. Their text features are taken for samples of a normal distribution
per class, and an upper bound of the expected cross-entropy under it is minimised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from coop_cmp.clip import LoadedCLIP, PromptLayout, context_layout, random_context
from coop_cmp.clip.prompts import Position, nameless_layout
from coop_cmp.config import PRECISIONS, choice, declare_trainer, integer, number
from coop_cmp.devices import to_device
from coop_cmp.errors import UserError

from .base import PromptedCLIP, PromptTrainer, Step
from .cmp import CMP

declare_trainer(
    "ProDA",
    N_CTX=integer(16, "vectors of each context", low=1, high=75),
    N_PROMPT=integer(32, "contexts", low=1, high=4096),
    PROMPT_BS=integer(4, "contexts per step, a divisor of N_PROMPT", low=1),
    ALPHA=number(0.1, "weight of the diversity of prompts", low=0),
    PENALTY_ON=choice("mean", ("mean", "bound"), "the logits that predict, or those of the loss"),
    PREC=choice("fp16", PRECISIONS, "precision"),
)


class PromptDistribution(nn.Module):
    """P contexts [P, M, d], each with a fixed place of the class name.

    A quarter of them has the name in front, a quarter in the middle and the others at the end. Each
    step trains the next few of a random order, which is drawn anew when all had their turn.
    """

    def __init__(self, node: Any, clip: LoadedCLIP, classnames: list[str], seed: int) -> None:
        super().__init__()
        prompts, per_step = node.N_PROMPT, node.PROMPT_BS
        if prompts % per_step:
            raise UserError(
                "TRAINER.PRODA.N_PROMPT must be a multiple of PROMPT_BS, got "
                f"{prompts} and {per_step}"
            )
        self.ctx = nn.Parameter(random_context(clip, prompts, node.N_CTX))
        quarter = prompts // 4
        self.places: dict[Position, range] = {
            "front": range(quarter),
            "middle": range(quarter, 2 * quarter),
            "end": range(2 * quarter, prompts),
        }
        self.layouts: dict[Position, PromptLayout] = {
            place: context_layout(classnames, clip.tokenizer, node.N_CTX, place)
            for place in self.places
        }
        self.nameless = nameless_layout(clip.tokenizer, node.N_CTX)
        self.per_step, self.seed = per_step, seed

    def of_step(self, step: int) -> list[int]:
        """The PROMPT_BS prompts that a training step uses.

        They depend on nothing but the seed and the step, so a run can be continued anywhere.
        """
        cycle, part = divmod(step, len(self.ctx) // self.per_step)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + cycle)
        order = torch.randperm(len(self.ctx), generator=generator)
        return order[part * self.per_step : (part + 1) * self.per_step].tolist()


class ProDACLIP(PromptedCLIP):
    """CLIP whose classifier is the mean over prompts of their normalised text features."""

    text_passes = 4  # three places of the name, and prompts without one
    prompt_learner: PromptDistribution

    def __init__(self, cfg: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        super().__init__(cfg, clip)
        self.node = cfg.TRAINER.PRODA
        self.prompt_learner = PromptDistribution(self.node, clip, classnames, cfg.SEED)
        self.step = 0

    def samples(self, chosen: Sequence[int] | None = None) -> Tensor:
        """Normalised text features [P, C, E] of the chosen prompts, or of all, by place."""
        learner = self.prompt_learner
        if chosen is None:
            chosen = range(len(learner.ctx))
        by_place = {
            place: [prompt for prompt in chosen if prompt in prompts]
            for place, prompts in learner.places.items()
        }
        order = torch.tensor([prompt for prompts in by_place.values() for prompt in prompts])
        contexts = learner.ctx.index_select(0, to_device(order, learner.ctx.device))
        parts = contexts.split([len(prompts) for prompts in by_place.values()])
        features = [
            self.text_encoder(learner.layouts[place], part)
            for place, part in zip(by_place, parts, strict=True)
            if len(part)
        ]
        return F.normalize(torch.cat(features).float(), dim=-1)

    def text_features(self) -> Tensor:
        """Mean [C, E] over all prompts, not normalised again."""
        return self.samples().mean(dim=0)

    def diversity_loss(self) -> Tensor:
        """Mean absolute cosine of different prompts without a class name."""
        learner = self.prompt_learner
        nameless = self.encode_prompts(learner.nameless, learner.ctx)[:, 0]  # [P, E]
        with torch.autocast(nameless.device.type, enabled=False):
            cosines = (nameless @ nameless.t()).abs()
        return (cosines.sum() - cosines.trace()) / max(1, len(nameless) * (len(nameless) - 1))

    def losses(self, image_features: Tensor, label: Tensor) -> Step:
        """The upper bound for some of the prompts, and the diversity of all."""
        samples = self.samples(self.prompt_learner.of_step(self.step))
        text = samples.mean(dim=0)
        logits = self.similarity(image_features, text)
        scale = self.logit_scale.float().exp()
        bound = logits + scale**2 / 2 * margin_variance(samples, image_features, label)
        losses = {
            "loss_upper": F.cross_entropy(bound, label),
            "loss_div": self.node.ALPHA * self.diversity_loss(),
        }
        return Step(logits, label, losses, image_features, text, trained_logits=bound)


def margin_variance(samples: Tensor, image_features: Tensor, label: Tensor) -> Tensor:
    """Variance [B, C] of the difference between each class's product and the true one's.

    The covariance is diagonal over features, full over classes, and divided by P + 1. With d the
    deviations from the mean, it is the sum over prompts and features of x^2 (d_y - d_c)^2; written
    out as a square, this takes two matrix products and no tensor with two class axes.

    Args:
        samples: Text features [P, C, E].
        image_features: [B, E]
        label: [B]
    """
    with torch.autocast(samples.device.type, enabled=False):
        deviations = samples - samples.mean(dim=0)
        squares = image_features**2  # [B, E]
        alone = squares @ deviations.square().sum(dim=0).t()  # [B, C]
        own = squares[:, None] * deviations[:, label].transpose(0, 1)  # [B, P, E]
        mixed = own.flatten(1) @ deviations.transpose(0, 1).flatten(1).t()  # [B, C]
        variance = (alone.gather(1, label[:, None]) + alone - 2 * mixed) / (len(samples) + 1)
        # Zero for the true class and nowhere negative, except for rounding.
        return variance.clamp(min=0).scatter(1, label[:, None], 0)


@TRAINER_REGISTRY.register()
class ProDA(PromptTrainer):
    """Prompt distribution learning."""

    node = "PRODA"
    cross_entropy = "loss_upper"
    model: ProDACLIP

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return ProDACLIP(self.cfg, clip, classnames)

    def compute_losses(self, batch: dict[str, Any]) -> Step:
        self.model.step = self.epoch * self.num_batches + self.batch_idx
        return super().compute_losses(batch)

    def penalised_logits(self, step: Step) -> Tensor:
        return step.inside if self.cfg.TRAINER.PRODA.PENALTY_ON == "bound" else step.logits


@TRAINER_REGISTRY.register()
class ProDA_CMP(CMP, ProDA):
    """ProDA with the confidence misalignment penalty."""
