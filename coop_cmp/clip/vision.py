"""Learned tokens in the image tower of a vision transformer, of open_clip, OpenAI or timm."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from coop_cmp.clip.tower import batch_first
from coop_cmp.errors import UserError, first_line


class ImageTower:
    """Where the tokens of a vision transformer go.

    Attributes:
        blocks: The transformer's blocks.
        before: The module that the tokens pass before the first block.
        width: Numbers in a token.

    Raises:
        UserError: The tower has no sequence of tokens, or takes no further ones.
    """

    def __init__(self, name: str, visual: Any) -> None:
        self.visual = visual
        trunk = getattr(visual, "trunk", visual)  # timm's
        blocks = getattr(trunk, "blocks", None)
        if blocks is None:
            blocks = getattr(getattr(trunk, "transformer", None), "resblocks", None)
        before = getattr(trunk, "norm_pre", getattr(trunk, "ln_pre", None))
        if not isinstance(blocks, nn.Sequential | nn.ModuleList) or before is None:
            raise UserError(
                f"{name} has no plain sequence of image tokens, into which learned tokens could be "
                "put: choose a vision transformer such as ViT-B/16 (MODEL.BACKBONE.NAME)"
            )
        self.blocks, self.before = list(blocks), before
        norms: Any = (m for m in blocks.modules() if hasattr(m, "normalized_shape"))
        self.width: int = next(norms).normalized_shape[0]
        self._try(name)

    @torch.no_grad()
    def _try(self, name: str) -> None:
        """Refuse a tower that cannot do with one token more, or does not see it."""
        size = self.visual.image_size
        pair = (size, size) if isinstance(size, int) else tuple(size)
        like = next(p for p in self.visual.parameters() if p.dim() == 4)  # of the patches
        image = torch.zeros(1, 3, *pair, device=like.device, dtype=like.dtype)
        token = 10 * torch.ones(1, self.width, device=like.device)
        try:
            plain, prompted = self.visual(image), self(image, [token])
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            raise UserError(
                f"{name}: its image tower takes no further tokens ({first_line(error)})"
            ) from error
        if plain.shape != prompted.shape or torch.equal(plain, prompted):
            raise UserError(f"{name}: the features of its image tower do not see further tokens")

    def __call__(self, image: Tensor, prompts: Sequence[Tensor]) -> Tensor:
        """Image features [B, E] with M learned tokens, not normalised.

        The tokens stand after the patches. They get no positional embedding; the first ones pass
        the layer normalisation before the blocks, the deeper ones do not.

        Args:
            image: [B, 3, H, W]
            prompts: Tokens [M, d] to begin with, and those that replace them before block 1, 2, ...
        """
        count = len(prompts[0])

        def add(module: nn.Module, args: Any) -> Any:
            return (_put(args[0], args[0].shape[1], prompts[0]), *args[1:])

        def replace(tokens: Tensor, block: nn.Module, args: Any) -> Any:
            if batch_first(block):
                return (_put(args[0], args[0].shape[1] - count, tokens), *args[1:])
            x = args[0].transpose(0, 1)
            return (_put(x, x.shape[1] - count, tokens).transpose(0, 1), *args[1:])

        def remove(block: nn.Module, args: Any, out: Tensor) -> Tensor:
            dim = int(batch_first(block))
            return out.narrow(dim, 0, out.shape[dim] - count)

        with ExitStack() as hooks:
            hooks.enter_context(self.before.register_forward_pre_hook(add, prepend=True))
            for block, tokens in zip(self.blocks[1:], prompts[1:], strict=False):
                hook = block.register_forward_pre_hook(partial(replace, tokens), prepend=True)
                hooks.enter_context(hook)
            hooks.enter_context(self.blocks[-1].register_forward_hook(remove))
            return self.visual(image)


def _put(x: Tensor, length: int, tokens: Tensor) -> Tensor:
    """Sequences [B, length + M, d] whose last M tokens are the given ones."""
    return torch.cat([x[:, :length], tokens.to(x.dtype).expand(x.shape[0], -1, -1)], dim=1)
