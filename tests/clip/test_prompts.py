"""coop_cmp/clip/prompts.py and packing.py: which token stands where."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coop_cmp.clip import (
    PromptLayout,
    context_layout,
    template_layout,
    text_layout,
)
from coop_cmp.clip.packing import into_blocks, pack
from coop_cmp.errors import UserError
from tests.small_clip import tokenizer

START, STOP, END = 49406, 269, 49407  # <start>, "." and <end> in CLIP's table
CPU = torch.device("cpu")


def ids(text: str) -> list[int]:
    """The token ids of a text alone, without start and end."""
    row = tokenizer([text])[0].tolist()
    return row[1 : row.index(END)]


@pytest.mark.parametrize(
    ("position", "before", "after"),
    [("end", [-1, -2, -3], []), ("middle", [-1], [-2, -3]), ("front", [], [-1, -2, -3])],
)
def test_the_name_stands_after_between_or_before_the_vectors(position, before, after):
    (slots,) = context_layout(["golden_retriever"], tokenizer, 3, position).slots
    assert slots == (START, *before, *ids("golden retriever"), *after, STOP, END)


@pytest.mark.parametrize("position", ["middle", "front"])
def test_a_name_that_ends_in_a_bracket_keeps_all_its_tokens(position):
    """In a sentence the bracket and the full stop are one token; apart they are two."""
    name = "kite (bird of prey)"
    (slots,) = context_layout([name], tokenizer, 2, position).slots
    assert [slot for slot in slots if slot >= 0] == [START, *ids(name), STOP, END]


def test_plain_text_is_the_tokenizers_row_up_to_the_end_token():
    texts = ["a photo of a cat.", "itap of a ram (adult male sheep)."]
    rows = tokenizer(texts).tolist()
    expected = tuple(tuple(row[: row.index(END) + 1]) for row in rows)
    assert text_layout(texts, tokenizer).slots == expected


def test_the_prefix_ends_where_classes_differ():
    layout = context_layout(["red cat", "red dog"], tokenizer, 2)
    assert layout.prefix == (START, -1, -2, *ids("red"))
    assert layout.n_tokens == 4 + 2 * 3
    assert layout.n_context == 2
    assert text_layout(["cat"], tokenizer).n_context == 0


def test_a_context_of_each_class_is_not_shared():
    layout = context_layout(["cat", "dog"], tokenizer, 2, class_specific=True)
    assert layout.prefix == (START,)
    assert layout.n_tokens == 1 + 2 * 5


def test_the_end_token_is_never_shared():
    layout = text_layout(["cat", "cat"], tokenizer)
    assert layout.prefix == (START, *ids("cat"))
    assert layout.n_tokens == 2 + 2


@pytest.mark.parametrize("position", ["end", "middle", "front"])
@pytest.mark.parametrize(("words", "n_ctx"), [(70, 4), (4, 70)])
def test_a_prompt_that_is_too_long_is_refused_by_name(position, words, n_ctx):
    with pytest.raises(UserError, match=r'too long for 77 tokens: ".*dog'):
        context_layout(["cat", "dog " * words], tokenizer, n_ctx, position)


slot_lists = st.lists(
    st.lists(st.integers(-3, 5), min_size=1, max_size=6).map(tuple), min_size=1, max_size=24
).map(lambda rows: tuple((START, *row, END) for row in rows))


@settings(max_examples=200, deadline=None)
@given(slots=slot_lists, class_specific=st.booleans(), limit=st.integers(1, 200))
def test_every_sequence_can_be_unpacked_again(slots, class_specific, limit):
    layout = PromptLayout(slots, class_specific)
    unpacked = []
    for packing in pack(layout, limit, CPU):
        tokens = packing.tokens.tolist()
        for place, source in zip(packing.learned.tolist(), packing.source.tolist(), strict=True):
            tokens[place] = -1 - source
        for end in packing.ends.tolist():
            places = seen(packing, end)
            assert packing.positions[places].tolist() == list(range(len(places)))
            for i, place in enumerate(places[packing.prefix :], packing.prefix):
                before = seen(packing, place - packing.prefix)
                assert before == places[: i + 1]  # causal, and the class's own alone
            unpacked.append([tokens[i] for i in places])
    for c, sequence in enumerate(slots):
        # A context of the class's own lies in its part of the joined context.
        first = c * layout.n_context if class_specific else 0
        assert unpacked[c] == [s if s >= 0 else s - first for s in sequence]


def seen(packing, own: int) -> list[int]:
    """Packed places that an own token looks at."""
    shared = packing.prefix
    if len(packing.rows):  # everything before it in its row
        row, column = divmod(packing.places[shared + own].item(), packing.rows.shape[1])
        return packing.rows[row, : column + 1].tolist()
    width = (len(packing.tokens) - shared) // packing.blocks
    block, row = divmod(own, width)
    mask = packing.mask[block, 0, shared if packing.whole else 0 :]
    columns = (mask[row, : shared + width] == 0).nonzero()[:, 0].tolist()
    return [c if c < shared else c + block * width for c in columns]


@pytest.mark.parametrize(("classes", "blocks"), [(10, 1), (100, 10)])
def test_a_single_block_attends_together_with_the_prefix(classes, blocks):
    layout = context_layout([f"{i} cats" for i in range(classes)], tokenizer, 4)
    (packing,) = pack(layout, layout.n_tokens, CPU)
    assert (packing.blocks, packing.whole) == (blocks, blocks == 1)
    if packing.whole:
        seen_by_prefix = (packing.mask[0, 0, : packing.prefix] == 0).int()
        assert seen_by_prefix.sum(1).tolist() == list(range(1, packing.prefix + 1))
        assert seen_by_prefix.triu(1).sum() == 0


@settings(max_examples=100, deadline=None)
@given(slots=slot_lists, limit=st.integers(1, 40))
def test_packings_stay_below_the_limit(slots, limit):
    layout = PromptLayout(slots)
    packings = pack(layout, limit, CPU)
    assert sum(len(packing.ends) for packing in packings) == len(slots)
    for packing in packings:
        assert len(packing.tokens) <= limit or len(packing.ends) == 1


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(2, 24), min_size=1, max_size=300))
def test_blocks_hold_every_class_once_and_are_nearly_full(lengths):
    blocks = into_blocks(dict(enumerate(lengths)))
    assert sorted(c for block in blocks for c in block) == list(range(len(lengths)))
    places = len(blocks) * max(sum(lengths[c] for c in block) for block in blocks)
    assert places <= sum(lengths) * 1.15  # 48 or more places, and the longest class has 24


def test_a_template_is_filled_with_each_name():
    layout = template_layout("a {}, {{sic}}.", ["golden_retriever", "cat"], tokenizer)
    expected = [
        (START, *ids(text), END) for text in ("a golden retriever, {sic}.", "a cat, {sic}.")
    ]
    assert layout.slots == tuple(expected)
