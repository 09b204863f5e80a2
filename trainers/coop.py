"""CoOp: Zhou et al., "Learning to Prompt for Vision-Language Models", IJCV 2022.

The words around a class name are replaced by learned vectors, shared by all classes or one set per
class; everything else of CLIP stays as it is.
"""

from __future__ import annotations

from typing import Any

from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from coop_cmp.clip import LoadedCLIP, context_layout, random_context, word_vectors
from coop_cmp.clip.prompts import Position
from coop_cmp.config import PRECISIONS, choice, declare_trainer, flag, integer, text

from .base import PromptedCLIP, PromptTrainer
from .cmp import CMP

declare_trainer(
    "CoOp",
    N_CTX=integer(16, "number of context vectors if CTX_INIT is empty", low=1, high=75),
    CSC=flag(False, "a context of its own for every class"),
    CTX_INIT=text("", "initial words; empty: random vectors"),
    PREC=choice("fp16", PRECISIONS, "precision"),
    CLASS_TOKEN_POSITION=choice("end", ("end", "middle", "front"), "place of the class name"),
)


class PromptLearner(nn.Module):
    """Context vectors [M, d], or [C, M, d] if every class has its own.

    With words to start from (CTX_INIT), M is their number of tokens and the context is shared;
    otherwise N_CTX vectors are drawn from a normal distribution with standard deviation 0.02.
    """

    def __init__(
        self,
        node: Any,
        clip: LoadedCLIP,
        classnames: list[str],
        class_specific: bool = False,
        position: Position = "end",
    ) -> None:
        super().__init__()
        words = node.CTX_INIT.replace("_", " ").strip()
        class_specific = class_specific and not words
        if words:
            vectors = word_vectors(words, clip.tokenizer, clip.text.embedding)
        else:
            groups = (len(classnames),) if class_specific else ()
            vectors = random_context(clip, *groups, node.N_CTX)
        self.ctx = nn.Parameter(vectors)
        self.layout = context_layout(
            classnames,
            clip.tokenizer,
            n_ctx=vectors.shape[-2],
            position=position,
            class_specific=class_specific,
        )
        print(f'Initial context: "{words or "random"}", {vectors.shape[-2]} vectors')


class CoOpCLIP(PromptedCLIP):
    """CLIP whose classifier is the encoded prompts."""

    def __init__(self, cfg: Any, clip: LoadedCLIP, learner: PromptLearner) -> None:
        super().__init__(cfg, clip)
        self.prompt_learner = learner

    def encode_text(self) -> Tensor:
        """Text features [C, E] of the prompts."""
        return self.text_encoder(self.prompt_learner.layout, self.prompt_learner.ctx)


@TRAINER_REGISTRY.register()
class CoOp(PromptTrainer):
    """Context optimisation: cross-entropy of the class logits, in the context vectors only."""

    node = "COOP"

    def make_model(self, clip: LoadedCLIP, classnames: list[str]) -> PromptedCLIP:
        node = self.cfg.TRAINER.COOP
        learner = PromptLearner(node, clip, classnames, node.CSC, node.CLASS_TOKEN_POSITION)
        return CoOpCLIP(self.cfg, clip, learner)


@TRAINER_REGISTRY.register()
class CoOp_CMP(CMP, CoOp):
    """CoOp with the confidence misalignment penalty."""
