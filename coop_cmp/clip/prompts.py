"""Prompts: the templates of the data sets, and token sequences with slots for learned vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from coop_cmp.clip.load import LoadedCLIP, Tokenizer
from coop_cmp.errors import UserError

Position = Literal["end", "middle", "front"]

DEFAULT_TEMPLATE = "a photo of a {}."
# As in the CoOp codebase. Data sets that are not listed use DEFAULT_TEMPLATE.
TEMPLATES = {
    "OxfordPets": "a photo of a {}, a type of pet.",
    "OxfordFlowers": "a photo of a {}, a type of flower.",
    "FGVCAircraft": "a photo of a {}, a type of aircraft.",
    "Food101": "a photo of {}, a type of food.",
    "DescribableTextures": "{} texture.",
    "EuroSAT": "a centered satellite photo of {}.",
    "UCF101": "a photo of a person doing {}.",
    "Digits": "a photo of the digit {}.",
    "DigitsNoise": "a photo of the digit {}.",
    "DigitsBlur": "a photo of the digit {}.",
    "DigitsRotate": "a photo of the digit {}.",
    "DigitsInvert": "a photo of the digit {}.",
}
# The seven of CLIP's eighty ImageNet templates that its authors found to be enough.
ENSEMBLE = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)


def template_of(cfg: Any) -> str:
    """Return the template of the configured data set; DATASET.TEMPLATE takes precedence."""
    own = getattr(cfg.DATASET, "TEMPLATE", "")
    return own or TEMPLATES.get(cfg.DATASET.NAME, DEFAULT_TEMPLATE)


def ensemble_of(cfg: Any) -> tuple[str, ...]:
    """Return the seven templates and, except on ImageNet itself, the data set's own."""
    if cfg.DATASET.NAME == "ImageNet":
        return ENSEMBLE
    return (*ENSEMBLE, template_of(cfg))


@dataclass(frozen=True)
class PromptLayout:
    """The token sequence of every class, from the start token to the end token.

    A sequence is a list of slots: a slot ``t >= 0`` is the token ``t``, a slot ``-1 - m`` is the
    m-th learned context vector. Nothing after the end token is listed, since the text tower is
    causal and reads its feature off the end token.

    Args:
        slots: One sequence per class.
        class_specific: Every class has context vectors of its own.
    """

    slots: tuple[tuple[int, ...], ...]
    class_specific: bool = False

    @cached_property
    def prefix(self) -> tuple[int, ...]:
        """The slots that all classes begin with; at least one slot per class is left over."""
        shared: list[int] = []
        for column in zip(*(sequence[:-1] for sequence in self.slots), strict=False):
            own_context = self.class_specific and column[0] < 0
            if own_context or any(slot != column[0] for slot in column):
                break
            shared.append(column[0])
        return tuple(shared)

    @cached_property
    def n_context(self) -> int:
        """Number of learned vectors M of a prompt."""
        return -min(0, *(slot for sequence in self.slots for slot in sequence))

    @property
    def n_classes(self) -> int:
        return len(self.slots)

    @cached_property
    def n_tokens(self) -> int:
        """Tokens that go through the text tower when the prefix is shared (one prompt)."""
        return len(self.prefix) + sum(len(s) - len(self.prefix) for s in self.slots)


def clean(classname: str) -> str:
    """Return a class name as it is written in a prompt: with blanks for underscores."""
    return classname.replace("_", " ")


def context_layout(
    classnames: Sequence[str],
    tokenizer: Tokenizer,
    n_ctx: int,
    position: Position = "end",
    class_specific: bool = False,
    words: str = "",
) -> PromptLayout:
    """Make prompts of ``n_ctx`` learned vectors and a class name, closed by a full stop.

    Args:
        classnames: Names as the data set gives them.
        tokenizer: CLIP's.
        n_ctx: Number of learned vectors M.
        position: Where the name stands: after, in the middle of, or before the vectors. For
            ``middle`` and ``front`` the full stop stays after the vectors.
        class_specific: Every class has vectors of its own.
        words: Only for ``end``: a phrase of at least ``n_ctx`` tokens. The vectors take the place
            of its first tokens, the others stay as fixed words.
    """
    if position not in ("end", "middle", "front"):
        raise UserError(
            f'the class token position must be "end", "middle" or "front", got "{position}"'
        )
    context = tuple(-1 - m for m in range(n_ctx))
    names = [clean(name) for name in classnames]
    if position == "end":
        phrase = words or " ".join(["X"] * n_ctx)
        texts = [f"{phrase} {name}." for name in names]
        slots = [(ids[0], *context, *ids[1 + n_ctx :]) for ids in token_ids(texts, tokenizer)]
        return PromptLayout(tuple(slots), class_specific)
    # The name is tokenised by itself: inside a sentence a bracket and the full stop fuse.
    start, *stop = token_ids(["."], tokenizer)[0]
    before, after = context[: n_ctx // 2], context[n_ctx // 2 :]
    if position == "front":
        before, after = (), context
    token_ids([f"{name}{' X' * n_ctx}." for name in names], tokenizer)  # refuses what is too long
    slots = [(start, *before, *ids[1:-1], *after, *stop) for ids in token_ids(names, tokenizer)]
    return PromptLayout(tuple(slots), class_specific)


def text_layout(texts: Sequence[str], tokenizer: Tokenizer) -> PromptLayout:
    """Make prompts of plain sentences, without learned vectors."""
    return PromptLayout(tuple(token_ids(texts, tokenizer)))


def template_layout(template: str, classnames: Sequence[str], tokenizer: Tokenizer) -> PromptLayout:
    """Make plain prompts of a template with one ``{}`` and the classes' names."""
    return text_layout([template.format(clean(name)) for name in classnames], tokenizer)


def token_ids(texts: Sequence[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Return the ids of each text from the start token to the end token (CLIP's largest id)."""
    table = tokenizer(list(texts))
    ends = table.argmax(dim=1).tolist()
    longest = max(ends, default=0)
    if longest == table.shape[1] - 1:
        culprit = texts[ends.index(longest)]
        raise UserError(f'prompt too long for {table.shape[1]} tokens: "{culprit}"')
    return [tuple(row[: end + 1]) for row, end in zip(table.tolist(), ends, strict=True)]


def word_vectors(words: str, tokenizer: Tokenizer, token_embedding: nn.Embedding) -> Tensor:
    """Return the embeddings [M, d] of the M tokens of a phrase, to initialise a context with."""
    ids = token_ids([words], tokenizer)[0][1:-1]
    weight = token_embedding.weight
    with torch.no_grad():
        return token_embedding(torch.tensor(ids, device=weight.device)).float()


def random_context(clip: LoadedCLIP, *shape: int) -> Tensor:
    """Draw context vectors [*shape, d] from a normal distribution with deviation 0.02."""
    width = clip.model.ln_final.weight.shape[0]
    return nn.init.normal_(torch.empty(*shape, width), std=0.02)
