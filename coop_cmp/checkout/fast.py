"""``--fast``: the text encoders of other people's checkouts, served by shared-prefix attention.

CoOp's descendants copy one class: a text encoder that takes prompts [C, L, d] and their tokens
[C, L] and runs CLIP's text tower over all tokens of all classes, again for every test batch. Here
its own code runs on fewer tokens (see :mod:`coop_cmp.checkout.borrowed`), and unchanged prompts are
encoded once. That this is right is not assumed: the first pass with gradients and the first without
go both ways, and unless the two agree the encoder keeps its own way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from coop_cmp.checkout.agreement import coarsest, differences, one_source
from coop_cmp.checkout.borrowed import NotServed, plan, serving
from coop_cmp.checkout.script import describe

# How far features and gradients may be from the encoder's own, as a share of the largest entry; and
# the same in steps of the precision, for weights in half precision.
FEATURES, GRADIENTS = 1e-5, 1e-4
STEPS = 16


def serve(trainer: Any) -> None:
    """Serve every text encoder of a built trainer; a line says what happens."""
    models = {m for m in (*vars(trainer).values(), *trainer._models.values()) if _is_module(m)}
    found = {module for model in models for module in model.modules() if _is_encoder(module)}
    split = {
        child for model in models for m in model.modules() if _splits(m) for child in m.modules()
    }
    for encoder in found - split:
        FastText(encoder)
    if found & split:
        say("the text encoder keeps its own code: it is spread over several GPUs")
    elif not found:
        say("nothing to do: the trainer keeps no text encoder such as CoOp's descendants copy")


def say(line: str) -> None:
    """Print a line of this module's."""
    print(f"coop_cmp --fast: {line}")


class FastText:
    """Stands in for the ``forward`` of a text encoder.

    Args:
        encoder: A module with the attributes of the class that CoOp's descendants copy.
    """

    def __init__(self, encoder: Any) -> None:
        self.encoder, self.own = encoder, encoder.forward
        self.blocks = list(encoder.transformer.resblocks)
        self.memory = Memory(encoder)
        self._given_up = False
        self._agreed: set[bool] = set()  # passes with and without gradients that were compared
        self._one_source: dict[torch.Size, int] = {}
        self._unpack_at = len(self.blocks)
        encoder.forward = self

    def __call__(self, *args: Any, **named: Any) -> Tensor:
        """The encoder's features."""
        try:
            return self.own(*args, **named) if self._given_up else self._serve(args, named)
        except NotServed as reason:
            self._give_up(str(reason))
            return self.own(*args, **named)

    def _serve(self, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        given = [*_parts((args, named))]
        inputs = [part for part in given if isinstance(part, Tensor)]
        learning = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in (*inputs, *self.encoder.parameters())
        )
        if not learning and self.memory.holds(given):
            return self.memory.features.clone()
        if learning in self._agreed:
            features = self._fast(args, named)
        else:
            self._compare(args, named, learning)
            features = self.own(*args, **named)
        if not learning:
            self.memory.keep(given, features)
        return features

    def _fast(self, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        prompts, tokens = self._prompts((*args, *named.values()))
        ends = tuple(tokens.argmax(dim=-1).tolist())
        shared = self._shared(prompts, min(ends))
        where = plan(ends, shared, prompts.shape[1], prompts.device)
        with serving(self.blocks, where, self._unpack_at) as served:
            features = self.own(*args, **named)
        self._unpack_at = served.unpack_at
        return features

    def _prompts(self, values: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        length = len(self.encoder.positional_embedding)
        tensors = [value for value in values if isinstance(value, Tensor)]
        prompts = [t for t in tensors if t.dim() == 3 and t.shape[1] == length]
        tokens = [t for t in tensors if t.dim() == 2 and not t.is_floating_point()]
        if not prompts or not tokens or tokens[0].shape != prompts[0].shape[:2]:
            raise NotServed("it is not given prompts [C, L, d] and their tokens [C, L]")
        return prompts[0], tokens[0]

    def _shared(self, prompts: Tensor, limit: int) -> int:
        """How many first tokens all classes share: equal values, and one source of gradients."""
        equal = (prompts[:, :limit] == prompts[:1, :limit]).all(dim=2).all(dim=0)
        count = int(equal.long().cumprod(dim=0).sum())
        if not prompts.requires_grad:
            return count
        if prompts.shape not in self._one_source:
            self._one_source[prompts.shape] = one_source(prompts, count)
        return min(count, self._one_source[prompts.shape])

    def _compare(self, args: tuple[Any, ...], named: dict[str, Any], learning: bool) -> None:
        """Go both ways, without autocast, whose rounding would hide differences."""
        device = self.encoder.positional_embedding.device.type
        try:
            with torch.autocast(device, enabled=False):
                fast = self._fast(args, named)
                own = self.own(*args, **named)
                found = differences(fast, own, learning)
        except NotServed:
            raise
        except Exception as error:  # whatever it is, the encoder's own code may do without
            raise NotServed(describe(error)) from None
        step = STEPS * coarsest(own)
        if not (found[0] <= max(FEATURES, step) and found[1] <= max(GRADIENTS, 4 * step)):
            raise NotServed(f"features differ by {found[0]:.1e}, gradients by {found[1]:.1e}")
        if learning:
            say(
                f"the text encoder is served; features agree to {found[0]:.1e}, gradients to "
                f"{found[1]:.1e}"
            )
        elif not self._agreed:
            say(f"the text encoder is served; features agree to {found[0]:.1e}, it does not learn")
        self._agreed.add(learning)

    def _give_up(self, why: str) -> None:
        self._given_up = True
        say(f"the text encoder keeps its own code: {why}")


class Memory:
    """The features of the last prompts that were encoded without gradients."""

    features: Tensor

    def __init__(self, encoder: nn.Module) -> None:
        self.encoder = encoder
        self._inputs: list[Tensor] = []
        self._circumstances: Any = None

    def keep(self, given: list[Any], features: Tensor) -> None:
        """Remember the features of what the encoder was given."""
        self.features = features.detach().clone()  # the checkout may change its own in place
        self._circumstances = self._now(given)
        self._inputs = [part.detach().clone() for part in given if isinstance(part, Tensor)]

    def holds(self, given: list[Any]) -> bool:
        """Whether what is given, and the weights, are those of the features."""
        if self._circumstances != self._now(given):
            return False
        tensors = [part for part in given if isinstance(part, Tensor)]
        return all(torch.equal(a, b) for a, b in zip(self._inputs, tensors, strict=True))

    def _now(self, given: list[Any]) -> Any:
        weights = [(p.data_ptr(), p._version) for p in self.encoder.parameters()]
        parts = [
            (part.shape, part.dtype, part.device) if isinstance(part, Tensor) else part
            for part in given
        ]
        device = next(self.encoder.parameters()).device.type
        return weights, parts, torch.is_inference_mode_enabled(), torch.is_autocast_enabled(device)


def _parts(value: Any) -> Iterator[Any]:
    """What an argument consists of, without the lists and dicts that hold it together."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | nn.ParameterList):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def _splits(module: nn.Module) -> bool:
    return isinstance(module, nn.DataParallel) and len(module.device_ids) > 1


def _is_encoder(module: nn.Module) -> bool:
    blocks = getattr(getattr(module, "transformer", None), "resblocks", ())
    parts = ("positional_embedding", "ln_final", "text_projection")
    if not blocks or not all(hasattr(module, part) for part in parts):
        return False
    if hasattr(module, "token_embedding"):  # a whole CLIP
        return False
    return all(isinstance(getattr(b, "attn", None), nn.MultiheadAttention) for b in blocks)
