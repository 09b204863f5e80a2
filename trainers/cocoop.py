"""CoCoOp: Zhou et al., "Conditional Prompt Learning for Vision-Language Models", CVPR 2022.

A small network maps each image's feature to a vector that is added to all context vectors, so that
every image has prompts of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from coop_cmp.clip import LoadedCLIP
from coop_cmp.config import PRECISIONS, choice, declare_trainer, integer, text

from .base import PromptedCLIP, PromptTrainer
from .cmp import CMP
from .coop import PromptLearner

REDUCTION = 16

declare_trainer(
    "CoCoOp",
    N_CTX=integer(16, "number of context vectors if CTX_INIT is empty", low=1, high=75),
    CTX_INIT=text("", "initial words; empty: random vectors"),
    PREC=choice("fp16", PRECISIONS, "precision"),
)


class ConditionalPromptLearner(PromptLearner):
    """Context vectors [M, d] shared by all classes, and the meta-net that shifts them."""

    def __init__(self, node: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        super().__init__(node, clip, classnames)
        features = clip.text.embed_dim
        hidden = max(1, features // REDUCTION)
        layers: dict[str, nn.Module] = {
            "linear1": nn.Linear(features, hidden),
            "relu": nn.ReLU(),
            "linear2": nn.Linear(hidden, self.ctx.shape[-1]),
        }
        self.meta_net = nn.Sequential(OrderedDict(layers))

    def forward(self, image_features: Tensor) -> Tensor:
        """Contexts [B, M, d] for normalised image features [B, E]."""
        shift = self.meta_net(image_features.to(self.ctx.dtype))  # [B, d]
        return self.ctx + shift[:, None]


class CoCoOpCLIP(PromptedCLIP):
    """CLIP whose classifier is encoded anew for every image."""

    prompt_learner: ConditionalPromptLearner

    def __init__(self, cfg: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        super().__init__(cfg, clip)
        self.prompt_learner = ConditionalPromptLearner(cfg.TRAINER.COCOOP, clip, classnames)

    def text_for(self, image_features: Tensor) -> Tensor:
        """Normalised text features [B, C, E] for normalised image features [B, E]."""
        learner = self.prompt_learner
        return self.encode_prompts(learner.layout, learner(image_features))

    def classifier(self) -> None:
        """There is no classifier for all images."""


@TRAINER_REGISTRY.register()
class CoCoOp(PromptTrainer):
    """Conditional context optimisation: cross-entropy, in the context and the meta-net."""

    node = "COCOOP"

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return CoCoOpCLIP(self.cfg, clip, classnames)


@TRAINER_REGISTRY.register()
class CoCoOp_CMP(CMP, CoCoOp):
    """CoCoOp with the confidence misalignment penalty."""
