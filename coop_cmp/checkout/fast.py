"""``--fast``: accelerate the text encoders of other people's checkouts.

CoOp's descendants copy one class: a text encoder that takes prompts [C, L, d] and their tokens
[C, L] and runs CLIP's text tower over all tokens of all classes, again for every test batch. Here
its own code runs on fewer tokens (see :mod:`coop_cmp.checkout.packed_blocks`), and unchanged
prompts are encoded once. That this is right is not assumed: the 1st, 2nd, 4th, 8th, ... pass is
computed both ways, and at the first difference the encoder gets its own code back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from coop_cmp.checkout.packed_blocks import NotPackable, packed, plan
from coop_cmp.checkout.runner import place_of

# How far features and gradients may be from the encoder's own, as a share of the largest entry; and
# the same in steps of the precision, for weights in half precision.
FEATURES, GRADIENTS = 1e-5, 1e-4
STEPS = 16
VALUES = (str, int, float, torch.dtype, torch.device, type(None))  # arguments besides tensors


def accelerate(trainer: Any) -> None:
    """Accelerate every text encoder of a built trainer; a line says what happens."""
    held = (*vars(trainer).values(), *trainer._models.values())
    models = {model for model in held if isinstance(model, nn.Module)}
    modules = {module for model in models for module in model.modules()}
    encoders = [module for module in modules if _is_encoder(module)]
    if not encoders:
        _say("nothing to do: the trainer keeps no text encoder such as CoOp's descendants copy")
    elif any(isinstance(m, nn.DataParallel) and len(m.device_ids) > 1 for m in modules):
        _say("the text encoder keeps its own code: the model is spread over several GPUs")
    else:
        for encoder in encoders:
            FastText(encoder)


class FastText:
    """Stand in for the ``forward`` of a text encoder.

    Args:
        encoder: A module with the attributes of the class that CoOp's descendants copy.
    """

    def __init__(self, encoder: Any) -> None:
        self.encoder, self.own = encoder, encoder.forward
        self.blocks = list(encoder.transformer.resblocks)
        self.kept = KeptFeatures(encoder)
        self._given_up = False
        self._passes = {True: 0, False: 0}  # with and without gradients
        self._shared = len(encoder.positional_embedding)  # at most, of prompts that learn
        self._unpack_at = len(self.blocks)
        encoder.forward = self

    def __call__(self, *args: Any, **named: Any) -> Tensor:
        """Return the encoder's features."""
        if self._given_up:
            return self.own(*args, **named)
        given = [*_parts((args, named))]
        if self.kept.are_of(given):
            return self.kept.features.clone()
        self._passes[torch.is_grad_enabled()] += 1
        count = self._passes[torch.is_grad_enabled()]
        try:
            for part in given:
                if not isinstance(part, (Tensor, *VALUES)):
                    kind = type(part).__name__
                    raise NotPackable(f"it is given a {kind}, and what is in there may learn too")
            if count.bit_count() == 1:  # a power of two
                self._compare(args, named)
                features = self.own(*args, **named)
            else:
                features = self._fast(args, named)
        except NotPackable as reason:
            self._given_up = True
            since = "keeps" if sum(self._passes.values()) == 1 else "gets back"
            _say(f"the text encoder {since} its own code: {reason}; the run is as without --fast")
            return self.own(*args, **named)
        if not features.requires_grad:
            self.kept.keep(given, features)
        return features

    def _fast(self, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        prompts, tokens = self._prompts((*args, *named.values()))
        ends = tuple(tokens.argmax(dim=-1).tolist())
        learns = prompts.requires_grad
        first = prompts[:, : min(self._shared, *ends)] if learns else prompts[:, : min(ends)]
        equal = (first == first[:1]).all(dim=2).all(dim=0)
        shared = int(equal.long().cumprod(dim=0).sum())
        if learns:  # equal values may have gradients of their own: no more than was compared
            self._shared = shared
        where = plan(ends, shared, prompts.shape[1], prompts.device)
        with packed(self.blocks, where, self._unpack_at) as this_pass:
            features = self.own(*args, **named)
        self._unpack_at = this_pass.unpack_at
        return features

    def _prompts(self, values: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        length = len(self.encoder.positional_embedding)
        tensors = [value for value in values if isinstance(value, Tensor)]
        prompts = [t for t in tensors if t.dim() == 3 and t.shape[1] == length]
        tokens = [t for t in tensors if t.dim() == 2 and not t.is_floating_point()]
        if not prompts or not tokens or tokens[0].shape != prompts[0].shape[:2]:
            raise NotPackable("it is not given prompts [C, L, d] and their tokens [C, L]")
        return prompts[0], tokens[0]

    def _compare(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Compute features and gradients both ways, and note what the encoder's own depend on.

        Autocast is off, as its rounding would hide differences. Gradients are on in a test as well:
        only the graph behind the features tells what they are a function of, as an adapter may
        reach the encoder inside of a function.
        """
        device = self.encoder.positional_embedding.device.type
        try:
            with torch.autocast(device, enabled=False), torch.enable_grad():
                fast, own = self._fast(args, named), self.own(*args, **named)
                features, gradients = differences(fast, own)
        except NotPackable:
            raise
        except torch.OutOfMemoryError:
            raise NotPackable("there is not enough memory to compute it both ways") from None
        except Exception as error:  # whatever it is, the encoder's own code may do without
            raise NotPackable(
                f"its code ({place_of(error)}) needs the tokens after the end tokens, which --fast "
                "leaves out"
            ) from error
        step = STEPS * coarsest(own)
        if not (features <= max(FEATURES, step) and gradients <= max(GRADIENTS, 4 * step)):
            if self._shared > 1:  # contexts of single classes may start equal, but learn apart
                self._shared = 1
                self._compare(args, named)
                return
            raise NotPackable(f"features differ by {features:.1e}, gradients by {gradients:.1e}")
        self.kept.learned |= set(leaves(own))
        training = torch.is_grad_enabled()
        if self._passes[training] == 1 and (training or not self._passes[True]):
            learns = f"gradients to {gradients:.1e}" if own.requires_grad else "it does not learn"
            line = f"the text encoder is accelerated; features agree to {features:.1e}"
            _say(line + f", {learns}" * training)


class KeptFeatures:
    """The features of the last prompts that were encoded without a gradient.

    Whether there is one is what the encoder's own features say, not its arguments and weights.
    """

    features: Tensor

    def __init__(self, encoder: nn.Module) -> None:
        self.encoder = encoder
        self.learned: set[Tensor] = set()  # found behind the features, wherever it is kept
        self._inputs: list[Tensor] = []
        self._circumstances: Any = None

    def keep(self, given: list[Any], features: Tensor) -> None:
        """Keep the features of what the encoder was given."""
        self.features = features.detach().clone()  # the checkout may change its own in place
        self._circumstances = self._now(given)
        self._inputs = [part.detach().clone() for part in given if isinstance(part, Tensor)]

    def are_of(self, given: list[Any]) -> bool:
        """Whether the features are of what is given, with all weights as they are now."""
        now = self._now(given)
        if now is None or now != self._circumstances:
            return False
        tensors = [part for part in given if isinstance(part, Tensor)]
        return all(torch.equal(a, b) for a, b in zip(self._inputs, tensors, strict=True))

    def _now(self, given: list[Any]) -> Any:
        """Return all that must stay but for the tensors' values; None if that cannot be told."""
        if torch.is_inference_mode_enabled():  # no graph shows on what the features depend
            return None
        weights = [*self.encoder.parameters(), *self.encoder.buffers(), *self.learned]
        versions = [(w.data_ptr(), w._version, w.requires_grad) for w in weights]
        parts = [
            (part.shape, part.dtype, part.device, part.requires_grad)
            if isinstance(part, Tensor)
            else part
            for part in given
        ]
        autocast = torch.is_autocast_enabled(weights[0].device.type)
        return versions, parts, torch.is_grad_enabled(), autocast


def differences(fast: Tensor, own: Tensor) -> tuple[float, float]:
    """Compute the largest differences of features, and of gradients of everything that learns."""
    learned = [*{*leaves(own), *leaves(fast)}]
    direction = torch.randn(own.shape, generator=torch.Generator().manual_seed(0)).to(own)

    def gradients(features: Tensor) -> list[Tensor]:
        total = (features * direction).sum()
        grads = torch.autograd.grad(total, learned, retain_graph=True, allow_unused=True)
        pairs = zip(grads, learned, strict=True)
        return [torch.zeros_like(leaf) if grad is None else grad for grad, leaf in pairs]

    pairs = zip(gradients(fast), gradients(own), strict=True) if learned else ()
    return distance(fast, own), max((distance(a, b) for a, b in pairs), default=0.0)


def distance(this: Tensor, that: Tensor) -> float:
    """Return the largest difference as a share of the largest entry of that."""
    a, b = this.detach().float(), that.detach().float()
    largest, difference = float(b.abs().max()), float((a - b).abs().max())
    return difference / largest if largest else difference


def leaves(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that would get a gradient from this one."""
    return [node.variable for node in _graph(tensor) if hasattr(node, "variable")]


def coarsest(tensor: Tensor) -> float:
    """Return the coarsest rounding step on the way of the gradients: checkouts use ``.half()``."""
    kinds = {tensor.dtype}
    for node in _graph(tensor):
        kinds |= {gradient.dtype for gradient in getattr(node, "_input_metadata", ())}
    return max(torch.finfo(kind).eps for kind in kinds if kind.is_floating_point)


def _graph(tensor: Tensor) -> list[Any]:
    """Return all nodes of the graph behind a tensor, each once."""
    seen: dict[Any, None] = {}
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen[node] = None
            waiting += [function for function, _ in node.next_functions]
    return list(seen)


def _say(line: str) -> None:
    print(f"coop_cmp --fast: {line}")


def _parts(value: Any) -> Iterator[Any]:
    """Yield what an argument consists of, without the lists and dicts that hold it together."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | nn.ParameterList):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def _is_encoder(module: nn.Module) -> bool:
    blocks = getattr(getattr(module, "transformer", None), "resblocks", ())
    parts = ("positional_embedding", "ln_final", "text_projection")
    if not blocks or not all(hasattr(module, part) for part in parts):
        return False
    if hasattr(module, "visual"):  # a whole CLIP
        return False
    return all(isinstance(getattr(b, "attn", None), nn.MultiheadAttention) for b in blocks)
