"""TPT, C-TPT and O-TPT: the context is tuned for each test image, without labels.

Shu et al., NeurIPS 2022; Yoon et al., ICLR 2024; Sharifdeen et al., CVPR 2025. An image is seen in
64 views. The entropy of their mean prediction, over the views that are most certain, is lowered by
one step in the context; C-TPT adds a term that spreads the text features of the classes, O-TPT one
that makes them orthogonal. The image itself is then classified with its own context, which is
forgotten.

All of them take one step from the same context for every image. So the text features and their
graph are the same for all images: they are encoded once, and an image costs one backward pass
through that graph and one forward pass with its own context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from dassl.engine import TRAINER_REGISTRY
from dassl.optim import build_optimizer
from torch import Tensor

from coop_cmp.clip import LoadedCLIP
from coop_cmp.config import (
    PRECISIONS,
    choice,
    declare_trainer,
    flag,
    integer,
    number,
    several,
    text,
)
from coop_cmp.errors import UserError
from coop_cmp.features.loaders import ManyViewsLoaders
from coop_cmp.runs.identity import read_identity

from .base import PromptedCLIP, PromptTrainer
from .checkpoint import learned_digest
from .coop import PromptLearner

STEP = {"OPTIM.NAME": "adamw", "OPTIM.LR": 0.005, "OPTIM.WEIGHT_DECAY": 0.01}

declare_trainer(
    "TPT",
    trains=False,
    N_CTX=integer(4, "number of context vectors if CTX_INIT is empty", low=1, high=75),
    CTX_INIT=text("a photo of a", "initial words; empty: a trained context (--model-dir)"),
    VIEWS=integer(64, "views of each test image, the image itself included", low=1, high=1024),
    CONFIDENT=number(0.1, "share of the views that count", above=0, high=1),
    AUGMIX=several(
        [True, False],
        flag(True, ""),
        "mix views with changed ones; a second value is for ImageNet and its variants",
    ),
    DISPERSION=several(
        [50.0, 20.0],
        number(0.0, "", low=0),
        "weight of CTPT's term; a second one is for ImageNet and its variants",
    ),
    ORTHOGONALITY=several(
        [18.0, 2.0],
        number(0.0, "", low=0),
        "weight of OTPT's term; a second one is for ImageNet and its variants",
    ),
    PREC=choice("amp", PRECISIONS, "precision"),
    defaults=STEP,
)
for name in ("CTPT", "OTPT"):
    defaults = {**STEP, "TRAINER.TPT.AUGMIX": [True]}
    declare_trainer(name, node="TPT", trains=False, defaults=defaults)

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


class TunedCLIP(PromptedCLIP):
    """CLIP that tunes its context for each image before it classifies it."""

    prompt_learner: PromptLearner

    def __init__(
        self, cfg: Any, clip: LoadedCLIP, classnames: list[str], term: Term | None
    ) -> None:
        super().__init__(cfg, clip)
        node = cfg.TRAINER.TPT
        self.prompt_learner = PromptLearner(node, clip, classnames).requires_grad_(False)
        self.term = term
        self.confident = int(node.VIEWS * node.CONFIDENT)
        self.make_optimizer = partial(build_optimizer, optim_cfg=cfg.OPTIM)
        self.start: tuple[Tensor, Tensor] | None = None
        layout = self.prompt_learner.layout
        self.at_once = self.text_encoder.prompts_at_once(layout)
        if self.text_encoder.kind == "naive":  # which has no budget
            self.at_once = 1
        if not self.at_once:
            raise UserError(
                f"the prompts of {layout.n_classes} classes do not fit in the "
                f"{self.text_encoder.budget >> 20} MB for activations, not even for one image: set "
                "MODEL.TEXT_BUDGET_MB higher"
            )

    def encode(self, context: Tensor) -> Tensor:
        """Normalised text features [C, E] of a context [M, d], or [B, C, E] of [B, M, d]."""
        return self.encode_prompts(self.prompt_learner.layout, context)

    def classifier(self) -> None:
        """There is none for all images; the graph that all of them start from is forgotten."""
        self.start = None

    def tune(self, views: Tensor) -> Tensor:
        """Contexts [B, M, d] for views [B, V, E]."""
        if self.start is None:
            with torch.enable_grad():
                context = self.prompt_learner.ctx.detach().clone().requires_grad_()
                self.start = context, self.encode(context)
        context, text = self.start
        scale = self.logit_scale.float().exp()
        gradients = first_gradients(context, text, views, scale, self.confident, self.term)
        return first_step(context, gradients, self.make_optimizer)

    def forward(self, views: Tensor) -> Tensor:
        """Logits [B, C] for features [B, V, E] of views, the first of which is the image itself."""
        parts = views.split(self.at_once)
        tuned = [self.similarity(part[:, 0], self.encode(self.tune(part))) for part in parts]
        return torch.cat(tuned)


@TRAINER_REGISTRY.register()
class TPT(PromptTrainer):
    """Test-time prompt tuning: nothing is trained, and every test image is learned from."""

    node = "TPT"
    cross_entropy = None
    model: TunedCLIP
    started = False  # from a trained context

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)
        node = cfg.TRAINER.TPT
        if int(node.VIEWS * node.CONFIDENT) < 1:
            raise UserError(
                f"TRAINER.TPT.CONFIDENT {node.CONFIDENT} leaves none of TRAINER.TPT.VIEWS "
                f"{node.VIEWS}: raise one of them"
            )
        for name in ("AUGMIX", "DISPERSION", "ORTHOGONALITY"):
            if not 1 <= len(node[name]) <= 2:
                raise UserError(f"TRAINER.TPT.{name} takes one or two values, got {node[name]}")
        if cfg.MODEL.COMPILE:
            raise UserError(
                f"MODEL.COMPILE must be empty for {type(self).__name__}, which goes back through "
                f'one pass of the text tower many times, got "{cfg.MODEL.COMPILE}"'
            )
        if cfg.OPTIM.NAME != "adamw":
            raise UserError(
                f'OPTIM.NAME must be "adamw" for {type(self).__name__}, got "{cfg.OPTIM.NAME}": '
                "a single step of another optimiser is another method"
            )

    def chosen(self, name: str) -> Any:
        """The value of a setting with a second one for ImageNet and its variants."""
        values = self.cfg.TRAINER.TPT[name]
        return values[-1 if self.cfg.DATASET.NAME.startswith("ImageNet") else 0]

    def term(self) -> Term | None:
        """What is added to the entropy, a function of text features [B, C, E]."""
        return None

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return TunedCLIP(self.cfg, clip, classnames, self.term())

    @cached_property
    def features(self) -> ManyViewsLoaders:
        """What serves the views of test images."""
        node = self.cfg.TRAINER.TPT
        return ManyViewsLoaders(
            self.cfg,
            self.model.visual,
            self.encode_image,
            self.precision,
            views=node.VIEWS,
            augmix=self.chosen("AUGMIX"),
        )

    def train(self) -> None:  # type: ignore[override]
        """There is nothing to train: test."""
        if not self.cfg.TRAINER.TPT.CTX_INIT.strip():
            raise UserError(
                "there is no context to start from: give words (TRAINER.TPT.CTX_INIT), or a "
                "trained run of CoOp (--eval-only --model-dir)"
            )
        self.test()

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """Start from the context of a trained CoOp run instead of words."""
        refuse_other_method(directory)
        super().load_model(directory, epoch)
        self.started = bool(directory)

    def facts(self, split: str | None = None) -> dict[str, Any]:
        """What is stored beside the metrics of a split."""
        facts = super().facts(split)
        facts["notes"].append(f"context tuned for each image on {self.cfg.TRAINER.TPT.VIEWS} views")
        if self.started:
            facts["checkpoint"] = learned_digest(self.learner)
        return facts


@TRAINER_REGISTRY.register()
class CTPT(TPT):
    """Calibrated test-time prompt tuning: text features are spread around their centre."""

    def term(self) -> Term:
        weight = self.chosen("DISPERSION")
        return lambda text: -weight * dispersion(text)


@TRAINER_REGISTRY.register()
class OTPT(TPT):
    """Test-time prompt tuning with text features that are pushed towards orthogonality."""

    def term(self) -> Term:
        weight = self.chosen("ORTHOGONALITY")
        return lambda text: weight * orthogonality(text)


def refuse_other_method(directory: str) -> None:
    """Refuse a trained run whose context is not shared vectors before the class name.

    A run of another codebase is taken for CoOp's if its checkpoint has the right shape.
    """
    identity = read_identity(directory) if directory else None
    if identity is None:
        return
    run = identity.settings
    shared = {"TRAINER.COOP.CSC": False, "TRAINER.COOP.CLASS_TOKEN_POSITION": "end"}
    if any(run.get(key) != value for key, value in shared.items()):
        raise UserError(
            f'"{directory}" is a run of {run["TRAINER.NAME"]}; test-time tuning starts from a run '
            "of CoOp with one context for all classes and the class name at the end (--model-dir)"
        )
