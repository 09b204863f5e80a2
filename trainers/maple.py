"""MaPLe: Khattak et al., "MaPLe: Multi-modal Prompt Learning", CVPR 2023.

Vectors are learned in the first layers of the text tower and, through a linear map for each layer,
become tokens in the same layers of the image tower.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from coop_cmp.clip import (
    ImageTower,
    LoadedCLIP,
    context_layout,
    random_context,
    word_vectors,
)
from coop_cmp.config import PRECISIONS, choice, declare_trainer, integer, text
from coop_cmp.errors import UserError

from .base import PromptedCLIP, PromptTrainer
from .cmp import CMP

declare_trainer(
    "MaPLe",
    N_CTX=integer(2, "vectors in each layer", low=1, high=75),
    CTX_INIT=text("a photo of a", "initial words of the first layer; empty: random"),
    PROMPT_DEPTH=integer(9, "layers with prompts; 1: only the input", low=1),
    PREC=choice("fp16", PRECISIONS, "precision"),
)


class MultiModalPromptLearner(nn.Module):
    """Text vectors [M, d_t] for J layers and linear maps of them to the image tower's width.

    With words to start from (CTX_INIT), the first layer's vectors begin as the first M of them and
    the other words stay where they are. All maps after the first layer start alike.
    """

    def __init__(
        self, node: Any, clip: LoadedCLIP, classnames: list[str], image_width: int
    ) -> None:
        super().__init__()
        text_width = clip.text.width
        count, depth = node.N_CTX, node.PROMPT_DEPTH
        words = node.CTX_INIT.replace("_", " ").strip()
        random = [random_context(clip, count) for _ in range(depth)]
        if words:
            known = word_vectors(words, clip.tokenizer, clip.text.embedding)
            if len(known) < count:
                raise UserError(
                    f'TRAINER.MAPLE.CTX_INIT "{words}" has fewer words than N_CTX ({count}): give '
                    'more words, or "" for random vectors'
                )
            random[0] = known[:count].clone()
        self.ctx = nn.Parameter(random[0])
        self.compound_prompts_text = nn.ParameterList(random[1:])
        self.proj = nn.Linear(text_width, image_width)
        first = nn.Linear(text_width, image_width)
        self.compound_prompt_projections = nn.ModuleList()
        for _ in range(depth - 1):
            layer = nn.Linear(text_width, image_width)
            layer.load_state_dict(first.state_dict())
            self.compound_prompt_projections.append(layer)
        self.layout = context_layout(classnames, clip.tokenizer, count, words=words)

    def image_prompts(self) -> list[Tensor]:
        """Tokens [M, d_v] for the first J layers of the image tower."""
        deep = zip(self.compound_prompt_projections, self.compound_prompts_text, strict=True)
        return [self.proj(self.ctx), *(layer(vectors) for layer, vectors in deep)]


class MaPLeCLIP(PromptedCLIP):
    """CLIP with learned vectors in both towers."""

    frozen_image_tower = False
    prompt_learner: MultiModalPromptLearner

    def __init__(self, cfg: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        super().__init__(cfg, clip)
        self.image_tower = ImageTower(clip.name, self.visual)
        if not clip.text.blocks:
            raise UserError(f"MaPLe: the text tower of {clip.name} is {clip.text.reason}")
        deepest = min(len(clip.text.blocks), len(self.image_tower.blocks))
        node = cfg.TRAINER.MAPLE
        if deepest < node.PROMPT_DEPTH:
            raise UserError(
                f"TRAINER.MAPLE.PROMPT_DEPTH must be from 1 to {deepest}, the layers of "
                f"{clip.name}, got {node.PROMPT_DEPTH}"
            )
        self.prompt_learner = MultiModalPromptLearner(
            node, clip, classnames, self.image_tower.width
        )

    def encode_image(self, image: Tensor) -> Tensor:
        """Normalised image features [B, E], with gradients to the prompts."""
        prompts = self.prompt_learner.image_prompts()
        image = image.to(self.text_encoder.dtype)
        return F.normalize(self.image_tower(image, prompts).float(), dim=-1)

    def encode_text(self) -> Tensor:
        """Text features [C, E] of the prompts."""
        learner = self.prompt_learner
        return self.text_encoder(learner.layout, learner.ctx, list(learner.compound_prompts_text))


@TRAINER_REGISTRY.register()
class MaPLe(PromptTrainer):
    """Multi-modal prompt learning: cross-entropy of the class logits."""

    node = "MAPLE"
    folders = ("prompt_learner", "MultiModalPromptLearner")

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)
        name = cfg.MODEL.BACKBONE.NAME
        if name.startswith("RN"):  # said before the weights are fetched
            raise UserError(f"MaPLe needs a vision transformer such as ViT-B/16, got {name}")

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return MaPLeCLIP(self.cfg, clip, classnames)


@TRAINER_REGISTRY.register()
class MaPLe_CMP(CMP, MaPLe):
    """MaPLe with the confidence misalignment penalty."""
