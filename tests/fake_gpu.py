"""A GPU without a GPU: fake CUDA tensors, which check devices and types and hold no numbers.

Mixing devices raises, and so does all that would make the host wait for the device: reading a
number, and shapes that depend on numbers. There is no backward pass; ``meta`` has one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from coop_cmp.clip.packing import pack

CUDA = torch.device("cuda")


def skip_if_old() -> None:
    """Skip a test where torch wants a driver even of fake tensors."""
    if torch.__version__ < (2, 10):
        pytest.skip("a GPU without a driver needs torch 2.10")


def on_fake_gpu(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """A copy of a module on a fake GPU, to be used inside ``mode``."""
    skip_if_old()
    with FakeCopyMode(mode):
        module = copy.deepcopy(module)
    moved: dict[int, nn.Parameter] = {}
    with mode:
        for child in module.modules():
            for name, value in child._parameters.items():
                if value is not None:
                    fake = nn.Parameter(value.detach().to(CUDA), value.requires_grad)
                    child._parameters[name] = moved.setdefault(id(value), fake)
            for name, buffer in child._buffers.items():
                if buffer is not None:
                    child._buffers[name] = buffer.to(CUDA)
    return module


@contextmanager
def fake_gpu(mode: FakeTensorMode) -> Iterator[None]:
    """Fake tensors, copies to them and mixed precision as with a real GPU."""
    skip_if_old()
    pack.cache_clear()  # what is kept for a fake device belongs to its mode
    there_is_one = mock.patch(
        "torch.cuda.amp.common.amp_definitely_not_available", return_value=False
    )
    pinned = mock.patch.object(torch.Tensor, "is_pinned", return_value=True)
    try:
        with there_is_one, pinned, mode:
            yield
    finally:
        pack.cache_clear()
