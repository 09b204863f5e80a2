"""Zero-shot CLIP beside a method that is being trained, for terms that compare with it."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coop_cmp.clip import LoadedCLIP, clean, template_of, text_layout
from coop_cmp.devices import to_device


class ZeroShotReference:
    """What zero-shot CLIP says, fixed before anything is learned.

    Made before the first step and before a checkpoint is loaded. Where the image tower itself is
    trained, it keeps a copy of it.

    Args:
        cfg: The settings of the run.
        clip: The model as it was loaded.
        classnames: The C classes.
        model: The method's PromptedCLIP, not trained yet.
    """

    def __init__(self, cfg: Any, clip: LoadedCLIP, classnames: list[str], model: Any) -> None:
        texts = [template_of(cfg).format(clean(name)) for name in classnames]
        with torch.no_grad():
            encoded = model.text_encoder(text_layout(texts, clip.tokenizer))
            self.text = F.normalize(encoded.float(), dim=-1)  # [C, E]
            self.scale = model.logit_scale.float().exp().clone()
        model.step_features = ()  # from now on it keeps them
        self.model, self.visual = model, model.visual
        if any(p.requires_grad for p in self.visual.parameters()):
            self.visual = copy.deepcopy(self.visual).eval().requires_grad_(False)

    @torch.no_grad()
    def logits(self, image: Tensor) -> Tensor:
        """Zero-shot logits [B, C] of images [B, 3, H, W] or their stored features [B, E]."""
        if self.model.frozen_image_tower:
            features = self.model.step_features[0]  # those of the same batch
        else:
            image = to_device(image, self.text.device)
            encoded = self.visual(image.to(self.model.text_encoder.dtype))
            features = F.normalize(encoded.float(), dim=-1)
        with torch.autocast(features.device.type, enabled=False):
            return self.scale * features @ self.text.t()

    def text_features(self) -> tuple[Tensor, Tensor]:
        """The text features of the last logits, [C, E] or [B, C, E], and the zero-shot ones."""
        return self.model.step_features[1], self.text
