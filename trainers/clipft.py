"""CLIP fine-tuning: all weights of CLIP are trained on the few labelled images.

FT-CE: cross-entropy over the classes, whose template is encoded anew in every step.
FT-Contrastive: CLIP's own loss on images and their classes' captions, as in Goyal et al., "Finetune
Like You Pretrain", CVPR 2023.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from dassl.optim import build_optimizer
from torch import Tensor, nn

from coop_cmp.clip import LoadedCLIP, template_layout, template_of
from coop_cmp.config import PRECISIONS, choice, declare_trainer, flag, number
from coop_cmp.devices import to_device
from coop_cmp.errors import UserError

from .base import PromptedCLIP, PromptTrainer, Step
from .cmp import CMP

EXCLUDED = -1e4  # a logit that takes no part in a softmax, and is finite

declare_trainer(
    "CLIPFT",
    MODE=choice("FT-CE", ("FT-CE", "FT-Contrastive"), "the loss"),
    TRAIN_TEXT=flag(True, "train the text tower as well as the image tower"),
    TRAIN_SCALE=flag(False, "train the temperature of the logits"),
    EPS=number(1e-6, "epsilon of AdamW", above=0),
    MAX_NORM=number(1.0, "largest norm of the gradient", above=0),
    PREC=choice("amp", PRECISIONS, "precision"),
)


class FineTunedCLIP(PromptedCLIP):
    """CLIP whose classifier is the encoded template of the data set."""

    frozen_image_tower = False

    def __init__(self, cfg: Any, clip: LoadedCLIP, classnames: list[str]) -> None:
        super().__init__(cfg, clip)
        self.node = cfg.TRAINER.CLIPFT
        template = template_of(cfg)
        self.layout = template_layout(template, classnames, clip.tokenizer)
        clip.model.requires_grad_(self.node.TRAIN_TEXT)
        clip.model.logit_scale.requires_grad_(self.node.TRAIN_SCALE)
        clip.model.visual.requires_grad_(True)
        self.clip = clip.model
        self._frozen_text: Tensor | None = None
        self.host_label: Tensor | None = None  # of the batch, to be read without waiting
        print(f"Template: {template}")

    def encode_image(self, image: Tensor) -> Tensor:
        """Normalised image features [B, E], with gradients to the image tower."""
        return F.normalize(self.visual(image).float(), dim=-1)

    def encode_text(self) -> Tensor:
        """Text features [C, E] of the template; computed once if the text tower is frozen."""
        if self.node.TRAIN_TEXT:
            return self.text_encoder(self.layout)
        if self._frozen_text is None:
            self._frozen_text = self.text_encoder(self.layout)
        return self._frozen_text

    def losses(self, image_features: Tensor, label: Tensor) -> Step:
        """Logits [B, C] and the loss of the mode.

        FT-Contrastive only encodes the classes of the batch; the logits of others are -inf.
        """
        if self.node.MODE == "FT-CE":
            return super().losses(image_features, label)
        present = (label if self.host_label is None else self.host_label).unique()
        slots = tuple(self.layout.slots[c] for c in present.tolist())
        classes = to_device(present, label.device)
        text = self.encode_prompts(replace(self.layout, slots=slots))
        known = self.similarity(image_features, text)  # [B, classes of the batch]
        logits = known.new_full((len(label), self.layout.n_classes), float("-inf"))
        logits = logits.index_copy(1, classes, known.detach())
        products = known[:, torch.searchsorted(classes, label)]
        losses = {"loss_contrastive": contrastive_loss(products, label)}
        return Step(logits, label, losses, image_features, text)


def contrastive_loss(products: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of images against captions and of captions against images, averaged.

    Other images of the same class are neither right nor wrong: they are left out.

    Args:
        products: Scaled similarities [B, B] of the images with each other's captions.
        label: Class indices [B].
    """
    pair = torch.arange(len(label), device=label.device)
    same = (label[:, None] == label) & (pair[:, None] != pair)
    products = products.masked_fill(same, EXCLUDED)
    return (F.cross_entropy(products, pair) + F.cross_entropy(products.t(), pair)) / 2


@TRAINER_REGISTRY.register()
class CLIPFT(PromptTrainer):
    """Full fine-tuning, in single precision or under autocast."""

    node = "CLIPFT"
    folders = ("clip",)
    model: FineTunedCLIP

    @property
    def learner(self) -> nn.Module:
        """All of CLIP, with what is frozen: a checkpoint can serve as weights elsewhere."""
        return self.model.clip

    @property
    def precision(self) -> Any:
        """``fp16`` is taken as ``amp``: weights in half precision cannot be trained."""
        return super().precision.replace("fp16", "amp")

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)
        if self.term_loss and cfg.TRAINER.CLIPFT.MODE == "FT-Contrastive":
            raise UserError(
                f"{type(self).__name__}: its term needs the logits of all classes, and "
                "TRAINER.CLIPFT.MODE FT-Contrastive has none; use FT-CE"
            )

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        return FineTunedCLIP(self.cfg, clip, classnames)

    def trained(self) -> list[nn.Parameter]:
        """The parameters that are not frozen."""
        return [p for p in self.learner.parameters() if p.requires_grad]

    def make_optimizer(self) -> torch.optim.Optimizer:
        group = {"params": self.trained(), "eps": self.cfg.TRAINER.CLIPFT.EPS}
        return build_optimizer(self.learner, self.cfg.OPTIM, param_groups=[group])

    def compute_losses(self, batch: dict[str, Any]) -> Step:
        self.model.host_label = batch["label"]
        try:
            return super().compute_losses(batch)
        finally:
            self.model.host_label = None

    def before_step(self) -> None:
        self.scaler.unscale_(self.optim)
        nn.utils.clip_grad_norm_(self.trained(), self.cfg.TRAINER.CLIPFT.MAX_NORM)

    def set_model_mode(self, mode: str = "train", names: Any = None) -> None:
        """Always ``eval``: BatchNorm keeps CLIP's statistics."""
        super().set_model_mode("eval", names)


@TRAINER_REGISTRY.register()
class CLIPFT_CMP(CMP, CLIPFT):
    """CLIP fine-tuning with the confidence misalignment penalty."""
