"""Prompts: the templates of the data sets, and token sequences with slots for learned vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
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
    **dict.fromkeys(
        ("Digits", "DigitsNoise", "DigitsBlur", "DigitsRotate", "DigitsInvert"),
        "a photo of the digit {}.",
    ),
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
    m-th learned context vector. Padding is not listed: a causal text tower reads its feature off
    the end token, and others are given as much as they need.

    Args:
        slots: One sequence per class.
        class_specific: Every class has context vectors of its own.
        pad: The token after the end of a text.
    """

    slots: tuple[tuple[int, ...], ...]
    class_specific: bool = False
    pad: int = 0

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
    words_of = words_by(tokenizer)
    context = tuple(-1 - m for m in range(n_ctx))
    names = [clean(name) for name in classnames]
    if position == "end":
        phrase = words or " ".join(["X"] * n_ctx)
        (head,) = words_of([phrase])
        own = words_of([f"{phrase} {name}." for name in names])
        if any(ids[: len(head)] != head for ids in own):  # the phrase runs into the name
            own = [head + ids for ids in words_of([f"{name}." for name in names])]
        skip = n_ctx if words else len(head)
        texts = [(*context, *ids[skip:]) for ids in own]
        return words_of.layout(texts, class_specific, names)
    # The name is tokenised by itself: inside a sentence a bracket and the full stop fuse.
    before, after = context[: n_ctx // 2], context[n_ctx // 2 :]
    if position == "front":
        before, after = (), context
    (stop,) = words_of(["."])
    texts = [(*before, *ids, *after, *stop) for ids in words_of(names)]
    return words_of.layout(texts, class_specific, names)


def nameless_layout(tokenizer: Tokenizer, n_ctx: int) -> PromptLayout:
    """Make one prompt of learned vectors and a full stop alone."""
    words_of = words_by(tokenizer)
    return words_of.layout([(*(-1 - m for m in range(n_ctx)), *words_of(["."])[0])])


def text_layout(texts: Sequence[str], tokenizer: Tokenizer) -> PromptLayout:
    """Make prompts of plain sentences, without learned vectors."""
    words_of = words_by(tokenizer)
    return words_of.layout(words_of(texts))


def template_layout(template: str, classnames: Sequence[str], tokenizer: Tokenizer) -> PromptLayout:
    """Make plain prompts of a template with one ``{}`` and the classes' names."""
    return text_layout([template.format(clean(name)) for name in classnames], tokenizer)


class Words:
    """A tokenizer's tokens without what it puts around each text.

    What begins and ends a text and what pads it is found out by encoding nothing and one word:
    CLIP's own tokenizer, SentencePiece (which begins with nothing) and Hugging Face's all differ.

    Attributes:
        start: Tokens before each text.
        end: Tokens after it. None for a tokenizer whose padding ends a text.
        pad: The token that fills up the rest.
        length: Tokens of a text with all of that.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        table = tokenizer(["", "a"])
        self.length, self.pad = table.shape[1], int(table[0, -1])
        empty, word = (self._unpadded(row) for row in table.tolist())
        same = [a == b for a, b in zip(empty, word, strict=False)]
        count = same.index(False) if False in same else len(same)
        self.start, self.end = empty[:count], empty[count:]

    def _unpadded(self, row: Sequence[int]) -> tuple[int, ...]:
        length = len(row)
        while length and row[length - 1] == self.pad:
            length -= 1
        return tuple(row[:length])

    def __call__(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the tokens of each text."""
        rows = [self._unpadded(row) for row in self.tokenizer(list(texts)).tolist()]
        for row, text in zip(rows, texts, strict=True):
            if len(row) == self.length:
                raise UserError(f'prompt too long for {self.length} tokens: "{text}"')
        return [row[len(self.start) : len(row) - len(self.end)] for row in rows]

    def layout(
        self,
        texts: Sequence[tuple[int, ...]],
        class_specific: bool = False,
        names: Sequence[str] = (),
    ) -> PromptLayout:
        """Make prompts of tokens and learned vectors; the names are for what is too long."""
        slots = tuple((*self.start, *text, *self.end) for text in texts)
        lengths = [len(sequence) for sequence in slots]
        if max(lengths, default=0) >= self.length:
            name = names[lengths.index(max(lengths))] if names else "the learned vectors"
            raise UserError(f'prompt too long for {self.length} tokens: "{name}"')
        return PromptLayout(slots, class_specific, self.pad)


@lru_cache(maxsize=8)
def words_by(tokenizer: Tokenizer) -> Words:
    """Return what is known of a tokenizer."""
    return Words(tokenizer)


def word_vectors(words: str, tokenizer: Tokenizer, token_embedding: nn.Embedding) -> Tensor:
    """Return the embeddings [M, d] of the M tokens of a phrase, to initialise a context with."""
    (ids,) = words_by(tokenizer)([words])
    weight = token_embedding.weight
    with torch.no_grad():
        return token_embedding(torch.tensor(ids, device=weight.device)).float()


def random_context(clip: LoadedCLIP, *shape: int) -> Tensor:
    """Draw context vectors [*shape, d] from a normal distribution with deviation 0.02."""
    return nn.init.normal_(torch.empty(*shape, clip.text.width), std=0.02)
