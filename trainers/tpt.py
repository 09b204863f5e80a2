"""TPT, C-TPT and O-TPT: the context is tuned for each test image, without labels.

Shu et al., NeurIPS 2022; Yoon et al., ICLR 2024; Sharifdeen et al., CVPR 2025. An image is seen in
64 views. The entropy of their mean prediction, over the views that are most certain, is lowered by
one step in the context; C-TPT adds a term that spreads the text features of the classes, O-TPT one
that makes them orthogonal. The image itself is then classified with its own context, which is
forgotten. The losses are in coop_cmp/tuning.py.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
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
from .tuning import Term, dispersion, first_gradients, first_step, orthogonality

declare_trainer(
    "TPT",
    trains=False,
    N_CTX=integer(4, "context vectors, where no words are given", low=1, high=75),
    CTX_INIT=text("a photo of a", "words to start from; empty: a trained context (--model-dir)"),
    VIEWS=integer(64, "views of each test image, the image itself included", low=1),
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
    defaults={"OPTIM.NAME": "adamw", "OPTIM.LR": 0.005, "OPTIM.WEIGHT_DECAY": 0.01},
)
declare_trainer(
    "CTPT",
    node="TPT",
    trains=False,
    defaults={
        "OPTIM.NAME": "adamw",
        "OPTIM.LR": 0.005,
        "OPTIM.WEIGHT_DECAY": 0.01,
        "TRAINER.TPT.AUGMIX": [True],
    },
)
declare_trainer(
    "OTPT",
    node="TPT",
    trains=False,
    defaults={
        "OPTIM.NAME": "adamw",
        "OPTIM.LR": 0.005,
        "OPTIM.WEIGHT_DECAY": 0.01,
        "TRAINER.TPT.AUGMIX": [True],
    },
)


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
        if self.text_encoder.kind == "naive":
            self.at_once = 1
        if not self.at_once:
            raise UserError(
                f"the prompts of {layout.n_classes} classes do not fit in the "
                f"{self.text_encoder.budget >> 20} MB for activations, not even for one image: set "
                "MODEL.TEXT_BUDGET_MB higher"
            )

    def encode(self, context: Tensor) -> Tensor:
        """Normalised text features [C, E] of a context [M, d], or [B, C, E] of [B, M, d]."""
        features = self.text_encoder(self.prompt_learner.layout, context)
        return F.normalize(features.float(), dim=-1)

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
    cross_entropy = False
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
