"""Zero-shot CLIP: Radford et al., "Learning Transferable Visual Models From Natural Language
Supervision", ICML 2021.

Nothing is learned: the classifier is the encoded template of the data set, or the mean over eight.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from coop_cmp.clip import LoadedCLIP, ensemble_of, template_layout, template_of
from coop_cmp.config import declare_trainer

from .base import PromptedCLIP, PromptTrainer

declare_trainer("ZeroshotCLIP", node="COOP", trains=False)
declare_trainer("ZeroshotCLIP2", node="COOP", trains=False)


class TemplateCLIP(PromptedCLIP):
    """CLIP whose classifier is the mean of the normalised text features of some templates."""

    def __init__(
        self, cfg: Any, clip: LoadedCLIP, classnames: list[str], templates: tuple[str, ...]
    ) -> None:
        super().__init__(cfg, clip)
        self.prompt_learner = nn.Module()
        self.layouts = [
            template_layout(template, classnames, clip.tokenizer) for template in templates
        ]
        print(f"Templates: {'; '.join(templates)}")

    def encode_text(self) -> Tensor:
        """Mean text features [C, E]."""
        encoded = [F.normalize(self.text_encoder(layout), dim=-1) for layout in self.layouts]
        return sum(encoded[1:], start=encoded[0]) / len(encoded)


@TRAINER_REGISTRY.register()
class ZeroshotCLIP(PromptTrainer):
    """One template per data set."""

    node = "COOP"
    cross_entropy = None

    def templates(self) -> tuple[str, ...]:
        return (template_of(self.cfg),)

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return TemplateCLIP(self.cfg, clip, classnames, self.templates())

    def train(self) -> None:  # type: ignore[override]
        """There is nothing to train: test."""
        self.test()

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        """There is nothing to load."""


@TRAINER_REGISTRY.register()
class ZeroshotCLIP2(ZeroshotCLIP):
    """The ensemble of CLIP's seven best templates and the data set's own."""

    def templates(self) -> tuple[str, ...]:
        return ensemble_of(self.cfg)
