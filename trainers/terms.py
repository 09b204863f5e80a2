"""Methods with one of the other training-time terms, such as ``CoOp_MbLS``: made when asked for."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from coop_cmp.clip import LoadedCLIP, template_layout, template_of
from coop_cmp.devices import to_device
from coop_cmp.errors import UserError
from coop_cmp.losses import function_of
from coop_cmp.losses.names import TERMS, WEIGHT, Term, settings_of, split_trainer

from .base import PromptedCLIP, PromptTrainer, Step
from .cmp import CMP


class TermTrainer(PromptTrainer):
    """Adds the weighted term to the loss of the method, or puts it in place of the cross-entropy.

    What is added sees the logits that predict; what replaces, those of the cross-entropy.
    """

    term: ClassVar[Term]
    zero_shot: ZeroShotCLIP

    def before_training(self, clip: LoadedCLIP) -> None:
        super().before_training(clip)
        if self.term.needs:
            self.zero_shot = ZeroShotCLIP(self.cfg, clip, self.dm.dataset.classnames, self.model)

    def forward_backward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        step = self.compute_losses(batch)
        settings = {k.lower(): v for k, v in settings_of(self.cfg, self.term.name).items()}
        weight = settings.pop(WEIGHT.lower(), None)
        logits = step.inside if self.term.replaces else self.penalised_logits(step)
        needed = [self.needed(need, step, batch) for need in self.term.needs]
        value = function_of(self.term.name)(logits, step.label, *needed, **settings)
        if self.term.replaces:
            del step.losses[str(self.cross_entropy)]
            step.losses[self.term_loss] = value
            return {**self.take_step(step), self.term_loss: value.detach()}
        step.losses[self.term_loss] = weight * value
        return {**self.take_step(step), self.term.name.lower(): value.detach()}

    def needed(self, need: str, step: Step, batch: dict[str, Any]) -> Any:
        """What the term takes besides logits and labels."""
        if need == "text_features":
            return step.text, self.zero_shot.text
        with self.autocast():
            return self.zero_shot.logits(step.image, batch["img"])


class ZeroShotCLIP:
    """Zero-shot CLIP beside a method in training, fixed before anything is learned.

    Where the image tower itself is trained, it keeps a copy of it.

    Args:
        cfg: The settings of the run.
        clip: The model as it was loaded.
        classnames: The C classes.
        model: The method's model, not trained yet.
    """

    def __init__(
        self, cfg: Any, clip: LoadedCLIP, classnames: list[str], model: PromptedCLIP
    ) -> None:
        layout = template_layout(template_of(cfg), classnames, clip.tokenizer)
        with torch.no_grad():
            self.text = model.encode_prompts(layout)  # [C, E]
            self.scale = model.logit_scale.float().exp().clone()
        self.dtype, self.visual = model.text_encoder.dtype, None
        if not model.frozen_image_tower:
            self.visual = copy.deepcopy(model.visual).eval().requires_grad_(False)

    @torch.no_grad()
    def logits(self, features: Tensor, image: Tensor) -> Tensor:
        """Logits [B, C] of images.

        Args:
            features: The method's image features [B, E].
            image: The images [B, 3, H, W], for a method that changes their features.
        """
        if self.visual is not None:
            image = to_device(image, self.text.device)
            features = F.normalize(self.visual(image.to(self.dtype)).float(), dim=-1)
        with torch.autocast(features.device.type, enabled=False):
            return self.scale * features @ self.text.t()


def register_if_term(name: str) -> None:
    """Make and register the trainer ``X_<Term>``, unless it is registered already."""
    plain, term = split_trainer(name)
    known = TRAINER_REGISTRY.registered_names()
    if term and plain in known and name not in known:
        TRAINER_REGISTRY.register(with_term(TRAINER_REGISTRY.get(plain), term))


def with_term(trainer: type, term: str) -> type:
    """Make the subclass of a trainer that trains with the term."""
    name = f"{trainer.__name__}_{term}"
    if not issubclass(trainer, PromptTrainer):
        raise UserError(
            f"{name}: {trainer.__name__} is no PromptTrainer; register coop_cmp.plug("
            f'{trainer.__name__}, term="{term}") in its file'
        )
    if trainer.cross_entropy is None:
        raise UserError(f"{name}: {trainer.__name__} trains with no cross-entropy to add to")
    if term == "CMP":
        return type(name, (CMP, trainer), {})
    members = {"term": TERMS[term], "term_loss": f"loss_{term.lower()}"}
    return type(name, (TermTrainer, trainer), members)
