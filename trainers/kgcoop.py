"""KgCoOp: Yao et al., "Visual-Language Prompt Tuning with Knowledge-guided Context Optimization",
CVPR 2023.

CoOp that is held back: the classifier must stay close to the one that CLIP makes from a template.
"""

from __future__ import annotations

from typing import Any

import torch
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from coop_cmp.clip import LoadedCLIP, template_layout, template_of
from coop_cmp.config import PRECISIONS, choice, declare_trainer, integer, number, text

from .base import PromptedCLIP, PromptTrainer, Step
from .cmp import CMP
from .coop import CoOpCLIP, PromptLearner

# Where the method's authors use another template than zero-shot CLIP.
ANCHOR_TEMPLATES = {"DescribableTextures": "a photo of a {}, a type of texture."}

declare_trainer(
    "KgCoOp",
    N_CTX=integer(4, "number of context vectors if CTX_INIT is empty", low=1, high=75),
    CTX_INIT=text("a photo of a", "initial words; empty: random vectors"),
    # As in the authors' code; the squared distance of their paper is twice that.
    W=number(8.0, "weight of 1 - cosine to the anchor", low=0),
    PREC=choice("fp16", PRECISIONS, "precision"),
)


class KgCoOpCLIP(CoOpCLIP):
    """CLIP with learned prompts and the template's classifier as their anchor."""

    def __init__(self, cfg: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        node = cfg.TRAINER.KGCOOP
        super().__init__(cfg, clip, PromptLearner(node, clip, classnames))
        self.weight = node.W
        template = cfg.DATASET.TEMPLATE or ANCHOR_TEMPLATES.get(cfg.DATASET.NAME, template_of(cfg))
        self.anchor_layout = template_layout(template, classnames, clip.tokenizer)
        self._anchor: Tensor | None = None
        print(f"Anchor: {template}")

    def anchor(self) -> Tensor:
        """Normalised text features [C, E] of the template; nothing of it is learned."""
        if self._anchor is None:
            with torch.no_grad():
                self._anchor = self.encode_prompts(self.anchor_layout)
        return self._anchor

    def losses(self, image_features: Tensor, label: Tensor) -> Step:
        """Cross-entropy, and the mean cosine distance of the classifier to its anchor."""
        step = super().losses(image_features, label)
        distance = 1 - (step.text * self.anchor()).sum(dim=-1).mean()
        step.losses["loss_kg"] = self.weight * distance
        return step


@TRAINER_REGISTRY.register()
class KgCoOp(PromptTrainer):
    """Knowledge-guided context optimisation."""

    node = "KGCOOP"
    unused = ("bias_vectors", "meta_net.")  # made by the authors' code and never trained

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return KgCoOpCLIP(self.cfg, clip, classnames)


@TRAINER_REGISTRY.register()
class KgCoOp_CMP(CMP, KgCoOp):
    """KgCoOp with the confidence misalignment penalty."""
