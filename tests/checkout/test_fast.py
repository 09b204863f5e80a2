"""Text encoders written as CoOp's descendants write them, with and without ``--fast``."""

from __future__ import annotations

import copy
from functools import reduce
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coop_cmp.checkout.fast import FastText, accelerate
from tests.small_clip import LENGTH, WIDTH, small_clip, tokenizer

NAMES = ["cat", "dog", "great grey owl", "a very long name of a thing indeed", "ox"]
CONTEXT = 4
TOKENS = tokenizer([f"{'X ' * CONTEXT}{name}." for name in NAMES])


class Encoder(nn.Module):
    """Takes prompts [C, L, d] and tokens [C, L]; ``more`` goes to the blocks with the tokens."""

    def __init__(self, clip_model: Any, batch_first: bool) -> None:
        super().__init__()
        self.transformer = copy.deepcopy(clip_model.transformer)
        self.positional_embedding = clip_model.positional_embedding
        self.ln_final, self.text_projection = clip_model.ln_final, clip_model.text_projection
        self.batch_first = batch_first
        self.mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)

    def forward(self, prompts: Tensor, tokens: Tensor, *more: Any) -> Tensor:
        x = prompts + self.positional_embedding.to(prompts.dtype)
        if self.batch_first:
            x = self.transformer(x, attn_mask=self.mask.to(x))
        else:
            x = x.transpose(0, 1)
            x = self.transformer.resblocks([x, *more])[0] if more else self.transformer.resblocks(x)
            x = x.transpose(0, 1)
        return self.ln_final(x)[torch.arange(len(x)), tokens.argmax(-1)] @ self.text_projection


def encoder(kind: str = "openai") -> Encoder:
    return Encoder(small_clip(kind), batch_first=kind == "vit").eval().requires_grad_(False)


class Prompts(nn.Module):
    """A learned context between the start token and the names."""

    def __init__(self, context: Tensor) -> None:
        super().__init__()
        self.context = nn.Parameter(context)
        table = small_clip("openai").token_embedding.weight[TOKENS]
        self.register_buffer("table", table)

    def forward(self) -> Tensor:
        context = self.context
        if context.dim() == 2:
            context = context.expand(len(NAMES), -1, -1)
        return torch.cat([self.table[:, :1], context, self.table[:, 1 + CONTEXT :]], dim=1)


def shared_context() -> Tensor:
    return torch.randn(CONTEXT, WIDTH, generator=torch.Generator().manual_seed(1))


def step(text: nn.Module, prompts: nn.Module, *more: Any) -> tuple[Tensor, list[Tensor]]:
    """Features, and the gradients of everything that learns."""
    modules = [text, prompts, *(m for m in more if isinstance(m, nn.Module))]
    learned = [p for m in modules for p in m.parameters() if p.requires_grad]
    learned += [m for m in more if isinstance(m, Tensor) and m.requires_grad]
    features = text(prompts(), TOKENS, *more)
    direction = torch.randn(features.shape, generator=torch.Generator().manual_seed(2))
    grads = torch.autograd.grad((features * direction.to(features)).sum(), learned)
    return features.detach(), [*grads]


def tokens_seen(text: Encoder) -> list[int]:
    """How many tokens went through the MLP of each block, in the passes from now on."""
    seen: list[int] = []
    for block in text.transformer.resblocks:
        block.mlp.register_forward_pre_hook(lambda _, args: seen.append(args[0][..., 0].numel()))
    return seen


def check_accelerated(text: Encoder, prompts: nn.Module, *more: Any) -> tuple[FastText, list[int]]:
    """Accelerate the encoder; after the comparison its features and gradients are still its own."""
    features, grads = step(text, prompts, *more)
    fast = FastText(text)
    for _ in range(2):
        step(text, prompts, *more)
    seen = tokens_seen(text)
    fast_features, fast_grads = step(text, prompts, *more)
    assert not fast._given_up
    torch.testing.assert_close(fast_features, features, rtol=1e-5, atol=1e-5)
    for grad, own in zip(fast_grads, grads, strict=True):
        torch.testing.assert_close(grad, own, rtol=1e-4, atol=1e-4 * float(own.abs().max()))
    return fast, seen


OWN = int((TOKENS.argmax(-1) - CONTEXT).sum())  # tokens after the prefix, up to the end tokens
LONGEST = int(TOKENS.argmax(-1).max()) + 1


@pytest.mark.parametrize("kind", ["openai", "vit"])
def test_a_shared_context_is_encoded_once_and_nothing_after_the_end_tokens(kind, capsys):
    _, seen = check_accelerated(encoder(kind), Prompts(shared_context()))
    assert max(seen) <= 1.2 * (1 + CONTEXT + OWN) < len(NAMES) * LENGTH / 4
    assert capsys.readouterr().out.count("the text encoder is accelerated; features agree to") == 1


def test_contexts_of_single_classes_that_start_equal_are_not_merged():
    prompts = Prompts(shared_context().repeat(len(NAMES), 1, 1))
    assert torch.equal(prompts()[0, : 1 + CONTEXT], prompts()[3, : 1 + CONTEXT])
    fast, seen = check_accelerated(encoder(), prompts)
    assert max(seen) > 1 + OWN + CONTEXT * (len(NAMES) - 1)
    with torch.no_grad():  # equal values without gradients are one prefix
        fast._fast((prompts(), TOKENS), {})
    assert seen[-1] <= 1.2 * (1 + CONTEXT + OWN)


class DeepBlock(nn.Module):
    """A block with context vectors of its own, as IVLP's, or from a list, as MaPLe's."""

    def __init__(self, block: nn.Module, own: bool) -> None:
        super().__init__()
        self.attn, self.block = block.attn, block
        self.mlp = block.mlp
        self.context = nn.Parameter(shared_context()) if own else None

    def forward(self, inputs: Any) -> Any:
        x, *more = inputs if isinstance(inputs, list) else [inputs]
        vectors = self.context
        if more and more[0]:
            vectors, more = more[0][0], [more[0][1:]]
        if vectors is not None:
            context = vectors.expand(x.shape[1], -1, -1).transpose(0, 1)
            x = torch.cat([x[:1], context, x[1 + CONTEXT :]])
        x = self.block(x)
        return [x, *more] if more else x


@pytest.mark.parametrize("own", [True, False])
def test_deep_prompts_inside_blocks_or_handed_to_them_are_accelerated(own):
    text = encoder()
    blocks = [DeepBlock(block, own and i > 0) for i, block in enumerate(text.transformer.resblocks)]
    text.transformer.resblocks = nn.Sequential(*blocks)
    deep = [] if own else [[nn.Parameter(shared_context() * i) for i in (1, 2)]]
    fast, seen = check_accelerated(text, Prompts(shared_context()), *deep)
    assert fast._unpack_at == len(blocks)
    assert max(seen) <= 1.2 * (1 + CONTEXT + OWN)


class ClassAwareBlock(nn.Module):
    """A block that puts vectors of each class in the place of the context, as TCP's."""

    def __init__(self, block: nn.Module, active: bool) -> None:
        super().__init__()
        self.attn, self.block, self.mlp, self.active = block.attn, block, block.mlp, active

    def forward(self, inputs: Any) -> Any:
        x, vectors = inputs
        if self.active:
            x = torch.cat([x[:1], vectors.transpose(0, 1), x[1 + CONTEXT :]])
        return [self.block(x), vectors]


def test_a_block_that_treats_classes_differently_gets_all_of_them_without_idle_tokens():
    text = encoder()
    blocks = [ClassAwareBlock(b, i == 1) for i, b in enumerate(text.transformer.resblocks)]
    text.transformer.resblocks = nn.Sequential(*blocks)
    vectors = torch.randn(len(NAMES), CONTEXT, WIDTH).requires_grad_()
    fast, seen = check_accelerated(text, Prompts(shared_context()), vectors)
    assert fast._unpack_at == 1
    assert seen[0] <= 1.2 * (1 + CONTEXT + OWN)
    assert seen[1:] == [len(NAMES) * LONGEST] * 2


class ReadsAll(Encoder):
    def forward(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        return self.transformer.resblocks((prompts + self.positional_embedding).transpose(0, 1))[-1]


class ReadsAfterTheEnd(Encoder):
    def forward(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        return self.transformer.resblocks(prompts.transpose(0, 1))[LONGEST]


class TakesMore(Encoder):
    more: Any = "more"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for block in self.transformer.resblocks:
            block.forward = lambda x, *_, plain=block.forward: plain(x)

    def forward(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        blocks, x = self.transformer.resblocks, prompts.transpose(0, 1)
        return reduce(lambda x, block: block(x, self.more), blocks, x)[0]


class TakesAMask(TakesMore):
    more = torch.zeros(LENGTH, LENGTH)


class TakesOther(Encoder):
    def forward(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        return super().forward(prompts.view(-1, LENGTH, WIDTH), tokens)


class Nan(Encoder):
    def forward(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        return super().forward(prompts, tokens) * float("nan")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ReadsAll, "features differ by"),
        (Nan, "features differ by nan"),
        (ReadsAfterTheEnd, "needs the tokens after the end tokens, which --fast leaves out;"),
        (TakesMore, "its blocks are given more than tokens, which"),
        (TakesAMask, "its blocks are given a mask of its own, which only fits all tokens;"),
        (TakesOther, "it is not given prompts [C, L, d] and their tokens [C, L];"),
    ],
)
def test_an_encoder_that_does_not_fit_keeps_its_own_code(kind, words, capsys):
    text = kind(small_clip("openai"), batch_first=False).requires_grad_(False)
    prompts = Prompts(shared_context())
    if kind is TakesOther:
        prompts.register_forward_hook(lambda *given: given[-1].flatten(0, 1))
    features, grads = step(text, prompts)
    FastText(text)
    for _ in range(2):
        again, grads_again = step(text, prompts)
        torch.testing.assert_close(again, features, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(grads_again, grads, rtol=0, atol=0, equal_nan=True)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "keeps its own code: " in printed
    assert words in printed


def test_unchanged_prompts_are_encoded_once_per_evaluation(capsys):
    text, prompts = encoder(), Prompts(shared_context())
    FastText(text)
    seen = tokens_seen(text)
    with torch.no_grad():
        first = text(prompts(), TOKENS)
        passes = len(seen)
        assert torch.equal(text(prompts(), TOKENS), first)
        assert len(seen) == passes
        text(prompts(), TOKENS).zero_()  # what a caller does to its features
        assert torch.equal(text(prompts(), TOKENS), first)
        assert len(seen) == passes
        prompts.context.mul_(2)
        other = text(prompts(), TOKENS)
        assert len(seen) > passes
        assert not torch.equal(other, first)
        text.ln_final.weight.mul_(2)
        try:
            assert not torch.equal(text(prompts(), TOKENS), other)
        finally:
            text.ln_final.weight.div_(2)
    assert capsys.readouterr().out.count("the text encoder is accelerated; features agree to") == 1


def test_frozen_prompts_are_encoded_once_in_training(capsys):
    text, prompts = encoder(), Prompts(shared_context())().detach()
    FastText(text)
    seen = tokens_seen(text)
    first = text(prompts, TOKENS)
    passes = len(seen)
    assert torch.equal(text(prompts, TOKENS), first)
    assert len(seen) == passes
    assert "it does not learn" in capsys.readouterr().out


class Adapted(Encoder):
    """Features pass through an adapter that reaches the encoder as a function, as MMA's."""

    def forward(self, prompts: Tensor, tokens: Tensor, adapt: Any = None) -> Tensor:
        return (adapt or self.adapt)(super().forward(prompts, tokens))


@pytest.mark.parametrize("as_argument", [True, False])
def test_an_adapter_inside_of_a_function_learns_and_is_never_outdated(as_argument, capsys):
    text = Adapted(small_clip("openai"), batch_first=False).eval().requires_grad_(False)
    scale = torch.full((), 2.0, requires_grad=True)
    more = [lambda x: scale * x] if as_argument else []
    text.adapt = lambda x: scale * x
    prompts = Prompts(shared_context())().detach()
    plain = text(prompts, TOKENS, *more).detach() / 2
    FastText(text)
    for value in (2.0, 3.0, 4.0):
        with torch.no_grad():
            scale.fill_(value)
            tests = [text(prompts, TOKENS, *more) for _ in range(2)]
        features = text(prompts, TOKENS, *more)
        (grad,) = torch.autograd.grad(features.sum(), scale)
        for computed in (*tests, features.detach()):
            torch.testing.assert_close(computed, value * plain, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(grad, plain.sum(), rtol=1e-4, atol=1e-4)
    printed = capsys.readouterr().out
    assert "does not learn" not in printed
    assert ("it is given a function, and what is in there may learn too" in printed) == as_argument


def test_gradients_that_go_astray_later_are_noticed_and_the_encoder_gets_its_own_code_back(capsys):
    class Changing(Encoder):
        reads_all = False

        def forward(self, prompts: Tensor, tokens: Tensor) -> Tensor:
            features = super().forward(prompts, tokens)
            if self.reads_all:  # what follows the end token, which packed tokens do not hold
                x = (prompts + self.positional_embedding).transpose(0, 1)
                features = features + self.transformer.resblocks(x)[-1] @ self.text_projection
            return features

    text = Changing(small_clip("openai"), batch_first=False).eval().requires_grad_(False)
    prompts, fast = Prompts(shared_context()), FastText(text)
    for _ in range(3):
        step(text, prompts)
    text.reads_all = True
    own = copy.deepcopy(text)
    del own.forward
    features, grads = step(text, prompts)
    expected, own_grads = step(own, prompts)
    assert fast._given_up
    assert torch.equal(features, expected)
    assert torch.equal(grads[0], own_grads[0])
    assert "the text encoder gets back its own code: features differ" in capsys.readouterr().out


def test_running_out_of_memory_is_not_taken_for_shapes_that_do_not_fit():
    text, prompts = encoder(), Prompts(shared_context())
    fast = FastText(text)
    for _ in range(2):
        step(text, prompts)

    def exhausted_once(*_: Any) -> None:
        hook.remove()
        raise torch.OutOfMemoryError("out of memory")

    hook = text.transformer.resblocks[1].mlp.register_forward_pre_hook(exhausted_once)
    with pytest.raises(torch.OutOfMemoryError):
        step(text, prompts)
    step(text, prompts)
    assert fast._unpack_at == len(text.transformer.resblocks)
    assert not fast._given_up


def test_a_plain_argument_is_part_of_what_is_remembered():
    class Scaled(Encoder):
        def forward(self, prompts: Tensor, tokens: Tensor, scale: float) -> Tensor:
            return scale * super().forward(prompts, tokens)

    text = Scaled(small_clip("openai"), batch_first=False).requires_grad_(False)
    FastText(text)
    with torch.no_grad():
        prompts = Prompts(shared_context())()
        once, twice = (text(prompts, TOKENS, scale) for scale in (1.0, 2.0))
    torch.testing.assert_close(twice, 2 * once)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
def test_every_precision_is_accelerated(precision):
    text, prompts = encoder(), Prompts(shared_context())
    if precision != "amp":
        kind = torch.float16 if precision == "fp16" else torch.bfloat16
        text, prompts = copy.deepcopy(text).to(kind), prompts.to(kind)
    fast = FastText(text)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "amp"):
        own, again = step(text, prompts), step(text, prompts)
    assert not fast._given_up
    assert again[0].dtype == own[0].dtype
    torch.testing.assert_close(again[0].float(), own[0].float(), rtol=0.1, atol=0.1)


def test_the_encoders_of_a_trainer_are_found(capsys):
    model = nn.Module()
    model.text_encoder = encoder()
    trainer = SimpleNamespace(model=model, _models={"prompts": Prompts(shared_context())})
    accelerate(trainer)
    assert isinstance(model.text_encoder.forward, FastText)
    model.text_encoder = encoder()
    model.text_encoder.token_embedding = small_clip("openai").token_embedding  # not a whole CLIP
    accelerate(trainer)
    assert isinstance(model.text_encoder.forward, FastText)
    accelerate(SimpleNamespace(model=Prompts(shared_context()), _models={}))
    assert "keeps no text encoder" in capsys.readouterr().out
