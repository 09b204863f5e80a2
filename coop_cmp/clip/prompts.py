"""What a prompt is made of: fixed tokens and slots for learned context vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from coop_cmp.clip.load import Tokenizer
from coop_cmp.errors import UserError

Position = Literal["end", "middle", "front"]


@dataclass(frozen=True)
class PromptLayout:
    """The token sequence of every class, from the start token to the end token.

    A sequence is a list of slots: a slot ``t >= 0`` is the token ``t``, a slot ``-1 - m`` is the
    m-th learned context vector. Nothing behind the end token is listed, since the text tower is
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
    """A class name as it is read in a prompt: underscores are blanks."""
    return classname.replace("_", " ")


def context_layout(
    classnames: Sequence[str],
    tokenizer: Tokenizer,
    n_ctx: int,
    position: Position = "end",
    class_specific: bool = False,
    words: str = "",
) -> PromptLayout:
    """Prompts of ``n_ctx`` learned vectors and a class name, closed by a full stop.

    Args:
        classnames: Names as the data set gives them.
        tokenizer: CLIP's.
        n_ctx: Number of learned vectors M.
        position: Where the name stands: behind, in the middle of, or before the vectors. For
            ``middle`` and ``front`` the full stop stays behind the vectors.
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
    before, behind = context[: n_ctx // 2], context[n_ctx // 2 :]
    if position == "front":
        before, behind = (), context
    token_ids([f"{name}{' X' * n_ctx}." for name in names], tokenizer)  # refuses what is too long
    slots = [(start, *before, *ids[1:-1], *behind, *stop) for ids in token_ids(names, tokenizer)]
    return PromptLayout(tuple(slots), class_specific)


def text_layout(texts: Sequence[str], tokenizer: Tokenizer) -> PromptLayout:
    """Plain sentences without learned vectors."""
    return PromptLayout(tuple(token_ids(texts, tokenizer)))


def token_ids(texts: Sequence[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Token ids of each text from the start token to the end token (CLIP's largest id)."""
    table = tokenizer(list(texts))
    ends = table.argmax(dim=1).tolist()
    longest = max(ends, default=0)
    if longest == table.shape[1] - 1:
        culprit = texts[ends.index(longest)]
        raise UserError(f'prompt too long for {table.shape[1]} tokens: "{culprit}"')
    return [tuple(row[: end + 1]) for row, end in zip(table.tolist(), ends, strict=True)]


def word_vectors(words: str, tokenizer: Tokenizer, token_embedding: torch.nn.Embedding) -> Tensor:
    """The embeddings [M, d] of the M tokens of a phrase, to initialise a context with."""
    ids = token_ids([words], tokenizer)[0][1:-1]
    weight = token_embedding.weight
    with torch.no_grad():
        return token_embedding(torch.tensor(ids, device=weight.device)).float()
