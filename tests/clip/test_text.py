"""The text encoder against the library's own encode_text, for every kind of prompt.

A learned vector is handed to the library as the row of an unused word in its table of tokens, and a
deep one by a hook before a block: its own code then does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CLIP, convert_weights_to_lp
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from coop_cmp.clip import LoadedCLIP, TextEncoder, context_layout, text_layout
from coop_cmp.clip.text import check_text_encoder
from coop_cmp.errors import UserError
from tests.small_clip import LAYERS, LENGTH, WIDTH, small_clip, tokenizer, vit

NAMES = ["cat", "yorkshire_terrier", "golf ball", "kite (bird of prey)", "dog", "ox"]
UNUSED = 20000  # the first of many words that no prompt here has
MODELS = ("vit", "rn50", "openai")
NO_KERNELS = {torch.ops.aten.detach, torch.ops.aten._unsafe_view, torch.ops.aten.empty}
# Position of the name, and what precedes the vectors' own dimensions: classes or groups.
KINDS = {
    "shared, name at the end": ("end", "shared", 0),
    "shared, name in the middle": ("middle", "shared", 0),
    "shared, name in front": ("front", "shared", 0),
    "class-specific, name at the end": ("end", "class", 0),
    "class-specific, name in the middle": ("middle", "class", 0),
    "class-specific, name in front": ("front", "class", 0),
    "one context per image": ("end", "group", 0),
    "many prompts, name in the middle": ("middle", "group", 0),
    "many prompts, name in front": ("front", "group", 0),
    "deep": ("end", "shared", LAYERS - 1),
    "deep in the first blocks only": ("end", "shared", 1),
    "deep, one context per image": ("end", "group", LAYERS - 1),
}

TEXTS = {
    "one": ["a photo of a cat."],
    "many": [f"a photo of {name}, a pet." for name in NAMES],
    "two that are equal": ["cat", "cat", "dog"],
    "that begin like others": ["a", "a a", "a a a a"],
    "the longest possible": [" ".join(["cat"] * (LENGTH - 3)), "cat"],
}


class Case:
    """Prompts of one kind: the layout, the context and the deep vectors."""

    def __init__(self, kind: str, n_ctx: int = 4, groups: int = 3) -> None:
        position, sharing, depth = KINDS[kind]
        lead = {"shared": (), "class": (len(NAMES),), "group": (groups,)}[sharing]
        self.layout = context_layout(NAMES, tokenizer, n_ctx, position, sharing == "class")
        draw = torch.Generator().manual_seed(3)
        deep_lead = lead if sharing == "group" else ()
        shapes = [(*lead, n_ctx, WIDTH)] + [(*deep_lead, n_ctx, WIDTH)] * depth
        self.context, *self.deep = (
            torch.randn(shape, generator=draw).requires_grad_() for shape in shapes
        )

    @property
    def learned(self) -> list[Tensor]:
        return [self.context, *self.deep]

    def encode(self, encoder: TextEncoder) -> Tensor:
        return encoder(self.layout, self.context, self.deep)


class Library(nn.Module):
    """Calls encode_text as forward, which is what functional_call replaces weights for."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model.encode_text(tokens)


@contextmanager
def deep_vectors(model: Any, vectors: Sequence[Tensor]) -> Iterator[None]:
    """Put vectors [M, d] at the places behind the start token, before blocks 1, 2, ..."""

    def hook(block: Any, args: Any, index: int) -> Any:
        x = args[0].clone()
        sequence_first = hasattr(block, "attn_mask") or not block.attn.batch_first
        places = slice(1, 1 + len(vectors[index]))
        rows = x.transpose(0, 1) if sequence_first else x
        rows[:, places] = vectors[index]
        return (x, *args[1:])

    handles = [
        block.register_forward_pre_hook(lambda b, args, i=i: hook(b, args, i))
        for i, block in enumerate(list(model.transformer.resblocks)[1 : 1 + len(vectors)])
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def library_features(model: Any, case: Case) -> Tensor:
    """What the model's own code makes of the prompts: [C, E] or [G, C, E]."""
    layout, grouped = case.layout, case.context.dim() == 3 and not case.layout.class_specific
    contexts = case.context if grouped else [case.context]
    features = []
    for g, context in enumerate(contexts):
        rows = context.flatten(0, -2)  # [M, d] or [C * M, d]
        places = UNUSED + torch.arange(len(rows))
        table = model.token_embedding.weight.index_copy(0, places, rows.to(torch.float32))
        tokens = torch.zeros(layout.n_classes, LENGTH, dtype=torch.long)
        for c, slots in enumerate(layout.slots):
            first = UNUSED + (c * layout.n_context if layout.class_specific else 0)
            tokens[c, : len(slots)] = torch.tensor([s if s >= 0 else first - 1 - s for s in slots])
        deep = [vectors[g] if vectors.dim() == 3 else vectors for vectors in case.deep]
        with deep_vectors(model, deep):
            weights = {"model.token_embedding.weight": table}
            features.append(torch.func.functional_call(Library(model), weights, (tokens,)))
    return torch.stack(features) if grouped else features[0]


def gradients(features: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of a fixed random mixture of the normalised features."""
    mixture = torch.randn(features.shape, generator=torch.Generator().manual_seed(5))
    loss = (F.normalize(features.float(), dim=-1) * mixture).sum()
    return list(torch.autograd.grad(loss, inputs))


def assert_close_gradients(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        assert other.norm() > 0
        assert (mine - other).norm() / other.norm() < 1e-4


def assert_same_features(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    assert ours.shape == theirs.shape
    difference = F.normalize(ours.float(), dim=-1) - F.normalize(theirs.float(), dim=-1)
    assert difference.abs().max() < tolerance


@pytest.mark.parametrize("way", ["shared", "naive"])
@pytest.mark.parametrize("model_kind", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_features_and_prompt_gradients_are_the_librarys(kind, model_kind, way):
    model, case = small_clip(model_kind), Case(kind)
    expected = library_features(model, case)
    features = case.encode(TextEncoder(model, way))
    assert_same_features(features, expected)
    assert_close_gradients(gradients(features, case.learned), gradients(expected, case.learned))


def test_classes_differ_and_the_context_matters():
    """Guards the other tests: on a tower that ignores its input they could not fail."""
    encoder, case = TextEncoder(small_clip("vit")), Case("shared, name at the end")
    features = F.normalize(case.encode(encoder), dim=-1)
    assert torch.pdist(features).min() > 1e-2
    moved = F.normalize(encoder(case.layout, case.context.flip(0)), dim=-1)
    assert (features - moved).norm(dim=-1).min() > 1e-2


@pytest.mark.parametrize("way", ["shared", "naive"])
@pytest.mark.parametrize("model_kind", MODELS)
@pytest.mark.parametrize("texts", TEXTS)
def test_plain_text_is_encoded_as_the_library_does(texts, model_kind, way):
    model = small_clip(model_kind)
    expected = model.encode_text(tokenizer(TEXTS[texts]))
    features = TextEncoder(model, way)(text_layout(TEXTS[texts], tokenizer))
    assert_same_features(features, expected)


@pytest.mark.parametrize("model_kind", MODELS)
@pytest.mark.parametrize("kind", ["shared, name at the end", "deep", "one context per image"])
def test_gradients_reach_the_whole_tower(kind, model_kind):
    model, case = deepcopy(small_clip(model_kind)).requires_grad_(True), Case(kind)
    tower = {
        name: parameter
        for name, parameter in model.named_parameters()
        if not name.startswith(("visual", "logit"))
    }
    inputs = [*tower.values(), *case.learned]
    features = case.encode(TextEncoder(model))
    expected = library_features(model, case)
    ours, theirs = gradients(features, inputs), gradients(expected, inputs)
    # The library's table has stand-ins for the learned vectors, the real one has not.
    table = list(tower).index("token_embedding.weight")
    assert not ours[table][UNUSED:40000].any()
    assert_close_gradients(ours, theirs)


def chunk_sizes(monkeypatch: pytest.MonkeyPatch, encoder: TextEncoder) -> list[tuple[int, int]]:
    """Note (groups, tokens) of every pass through the tower."""
    seen: list[tuple[int, int]] = []
    run = encoder._run

    def spy(packing: Any, context: Tensor, *deep: Tensor) -> Tensor:
        seen.append((len(context), len(packing.tokens)))
        return run(packing, context, *deep)

    monkeypatch.setattr(encoder, "_run", spy)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_budget_cuts_the_work_into_chunks_with_the_same_result(kind, monkeypatch):
    model, case = small_clip("vit"), Case(kind)
    whole = case.encode(TextEncoder(model))
    encoder = TextEncoder(model, budget=20 * LAYERS * WIDTH * 4 * 15)  # about 15 tokens with graph
    seen = chunk_sizes(monkeypatch, encoder)
    features = case.encode(encoder)
    longest = max(map(len, case.layout.slots))
    assert len(seen) > 1
    assert all(groups * tokens <= max(15, longest) for groups, tokens in seen)
    assert_same_features(features, whole)
    assert_close_gradients(gradients(features, case.learned), gradients(whole, case.learned))


def test_groups_are_cut_before_classes(monkeypatch):
    case = Case("one context per image", groups=5)
    encoder = TextEncoder(small_clip("vit"))
    encoder.budget = 20 * LAYERS * WIDTH * 4 * 2 * case.layout.n_tokens
    seen = chunk_sizes(monkeypatch, encoder)
    case.encode(encoder)
    assert seen == [(2, case.layout.n_tokens)] * 2 + [(1, case.layout.n_tokens)]


def test_chunks_keep_no_activations_for_the_backward_pass():
    case, saved = Case("shared, name at the end"), []

    def note(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    def kept(budget: int) -> int:
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            case.encode(TextEncoder(small_clip("vit"), budget=budget))
        return sum(saved)

    assert kept(budget=1) < kept(budget=1 << 30) / 10


def test_without_gradients_more_fits_in_the_budget(monkeypatch):
    case = Case("shared, name at the end")
    encoder = TextEncoder(small_clip("vit"), budget=16 * WIDTH * 4 * 40)
    seen = chunk_sizes(monkeypatch, encoder)
    case.encode(encoder)
    with_graph = len(seen)
    with torch.no_grad():
        case.encode(encoder)
    assert len(seen) - with_graph < with_graph


def test_gradients_flow_after_a_first_pass_in_inference_mode():
    case = Case("shared, name at the end", n_ctx=7)  # a layout that no other test has packed
    encoder = TextEncoder(small_clip("vit"))
    with torch.inference_mode():
        case.encode(encoder)
    assert gradients(case.encode(encoder), case.learned)[0].norm() > 0


@pytest.mark.parametrize("kind", ["shared, name at the end", "deep", "one context per image"])
def test_half_precision_stays_near_single_precision(kind):
    case = Case(kind)
    single = case.encode(TextEncoder(small_clip("vit")))
    model = deepcopy(small_clip("vit"))
    convert_weights_to_lp(model)
    halves = {way: case.encode(TextEncoder(model, way)) for way in ("shared", "naive")}
    error = {
        way: (F.normalize(half.float(), dim=-1) - F.normalize(single, dim=-1)).abs().max()
        for way, half in halves.items()
    }
    assert halves["shared"].dtype == torch.float16
    assert error["shared"] < max(2e-3, 2 * error["naive"])
    ours, theirs = gradients(halves["shared"], case.learned), gradients(single, case.learned)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == torch.float32
        assert F.cosine_similarity(mine.flatten(), other.flatten(), dim=0) > 0.999


@pytest.mark.parametrize("budget", [1, 4 << 30])
def test_autocast_stays_near_single_precision(budget):
    case = Case("shared, name at the end")
    single = case.encode(TextEncoder(small_clip("vit")))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = case.encode(TextEncoder(small_clip("vit"), budget=budget))
        assert features.dtype == torch.bfloat16
    assert_same_features(features, single, tolerance=3e-2)
    ours, theirs = gradients(features, case.learned), gradients(single, case.learned)
    assert F.cosine_similarity(ours[0].flatten(), theirs[0].flatten(), dim=0) > 0.99


def test_a_projection_that_is_a_layer_works_like_one_that_is_a_matrix():
    model, case = deepcopy(small_clip("vit")), Case("shared, name at the end")
    matrix = model.text_projection
    expected = case.encode(TextEncoder(model))
    del model.text_projection
    model.text_projection = nn.Linear(*matrix.shape, bias=False)
    model.text_projection.weight = nn.Parameter(matrix.t().clone(), requires_grad=False)
    assert_same_features(case.encode(TextEncoder(model)), expected)


@pytest.mark.parametrize("way", ["shared", "naive"])
@pytest.mark.parametrize("position", ["middle", "front"])
def test_deep_prompts_with_a_name_before_the_context_are_refused(position, way):
    layout = context_layout(NAMES, tokenizer, 4, position)
    vectors = torch.zeros(4, WIDTH)
    with pytest.raises(UserError, match="before the class name"):
        TextEncoder(small_clip("vit"), way)(layout, vectors, [vectors])


@pytest.mark.parametrize("way", ["shared", "naive"])
def test_deep_prompts_alone_may_differ_between_groups(way):
    layout = context_layout(NAMES, tokenizer, 4)
    context, deep = torch.randn(4, WIDTH), torch.randn(2, 4, WIDTH)
    encoder = TextEncoder(small_clip("vit"), way)
    features = encoder(layout, context, [deep])
    for group, vectors in zip(features, deep, strict=True):
        assert_same_features(group, encoder(layout, context, [vectors]))


def test_the_naive_way_runs_one_prompt_of_each_class_at_a_time():
    encoder, sizes = TextEncoder(small_clip("vit"), "naive"), []
    block = encoder.clip.transformer.resblocks[0]
    handle = block.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    encoder(context_layout(NAMES, tokenizer, 4), torch.zeros(3, 4, WIDTH))
    handle.remove()
    assert sizes == [len(NAMES)] * 3


def test_few_tokens_are_computed(monkeypatch):
    """100 names of one or two words under 16 vectors: hundreds of tokens, not 7,700."""
    names = [f"{a} {b}" for a in ("old", "big", "red", "wet") for b in ["cat"] * 25]
    layout = context_layout(names, tokenizer, 16)
    encoder = TextEncoder(small_clip("vit"))
    seen = chunk_sizes(monkeypatch, encoder)
    encoder(layout, torch.zeros(16, WIDTH))
    assert layout.n_tokens == 1 + 16 + 100 * 4
    ((groups, tokens),) = seen
    assert groups == 1
    assert 417 <= tokens <= 1.02 * 417


@pytest.mark.parametrize("kind", ["deep, one context per image", "class-specific, name in front"])
def test_the_compiled_pass_is_one_graph_with_the_same_result(kind, monkeypatch):
    compiled, case, model = torch.compile, Case(kind), small_clip("vit")

    def without_kernels(function: Any, fullgraph: bool, mode: str) -> Any:
        assert (fullgraph, mode) == (True, "reduce-overhead")
        return compiled(function, fullgraph=True, backend="eager")

    monkeypatch.setattr(torch, "compile", without_kernels)
    expected = case.encode(TextEncoder(model))
    assert torch.equal(case.encode(TextEncoder(model, mode="reduce-overhead")), expected)


def test_a_compiled_encoder_takes_more_shapes_than_torch_compiles_by_itself(monkeypatch):
    eager = partial(torch.compile, backend="eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", lambda run, **_: eager(run))
    plain = TextEncoder(small_clip("vit"))
    with torch._dynamo.config.patch(recompile_limit=8):
        encoder = TextEncoder(plain.clip, mode="default")
        for classes, vectors in product((1, 30, 90), (1, 2, 5, 9)):
            layout = context_layout(["cat"] * classes, tokenizer, vectors)
            for context in (torch.zeros(vectors, WIDTH), torch.zeros(3, vectors, WIDTH)):
                assert torch.equal(encoder(layout, context), plain(layout, context))


def kernels(function: Any) -> int:
    """Operations of a call that move or compute numbers: what a GPU would launch."""

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.calls += not (function.is_view or function.overloadpacket in NO_KERNELS)
            return function(*args, **(kwargs or {}))

    with Count() as count:
        function()
    return count.calls


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_launches_as_many_kernels_for_many_lengths_of_names_as_for_one(kind, monkeypatch):
    encoder, counts = TextEncoder(small_clip("vit")), []
    for lengths in (1, 9):
        names = [("cat", "ox")[i % 2] + " dog" * (i % lengths) for i in range(60)]
        monkeypatch.setitem(globals(), "NAMES", names)
        case = Case(kind)

        def step(case: Case = case) -> list[Tensor]:
            return gradients(case.encode(encoder), case.learned)

        step()  # what is cached is cached
        counts.append(kernels(step))
    assert counts[0] == counts[1]
    assert counts[0] < 60 * (LAYERS + 1)


def test_a_tower_with_parts_that_the_encoder_does_not_know_is_refused():
    model = deepcopy(small_clip("vit"))
    attention = model.transformer.resblocks[1].attn
    attention.register_forward_hook(lambda module, args, out: (1.5 * out[0], *out[1:]))
    clip = LoadedCLIP(model, tokenizer, "scaled", "", "", (16, 16))
    with pytest.raises(UserError, match=r'scaled: its text tower .* MODEL.TEXT_ENCODER to "naive"'):
        check_text_encoder(clip, TextEncoder(model))
    check_text_encoder(clip, TextEncoder(model, "naive"))


@pytest.mark.parametrize("part", ["qk_norm", "scale_heads", "scale_attn"])
@torch.no_grad()
def test_open_clips_own_variants_of_a_block_take_the_full_way(part):
    vision = vit(16, 8, 16, 1, 8)
    torch.manual_seed(0)
    model = CLIP(16, vision, {"width": 16, "heads": 2, "layers": 2, part: True}).eval()
    for name, value in model.named_parameters():  # scales that are 1 at first would be no test
        value.mul_(1 + 0.3 * torch.rand_like(value) * name.startswith("transformer"))
    clip = LoadedCLIP(model, tokenizer, part, "", "", (16, 16))
    encoder = TextEncoder(model)
    assert encoder.kind == "full"
    check_text_encoder(clip, encoder)
