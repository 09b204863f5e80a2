"""A model of a GPU: what a pass of the text encoder would take there, from what it computes.

    python benchmarks/device.py [--json FILE] [--gpu A100] [--precision fp16] [--classes 10 100]

Nothing here is measured. Forward and backward of ViT-B/16's text tower are traced on the ``meta``
device: kernels (non-view operations), floating-point operations and bytes moved, each
kernel reading its inputs and writing its outputs once. The host launches kernels one after the
other, the device runs them: the slower of both is the time. A CUDA graph needs no launches, so what
remains is the device's time. With a GPU, replace the model by
``python benchmarks/text_encoder.py --device cuda``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

import open_clip
import torch
import torch.nn.functional as F
from common import class_names, parser_of, random_clip, report
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from coop_cmp.clip import TextEncoder, context_layout

NO_KERNELS = {torch.ops.aten.detach, torch.ops.aten._unsafe_view, torch.ops.aten.empty}
HALF = {"fp32": torch.float32, "fp16": torch.float16}
Kernels = list[tuple[int, int]]  # operations and bytes of each


@dataclass(frozen=True)
class Gpu:
    """Stated figures of a device.

    Args:
        launch: Seconds that the host needs for one kernel, PyTorch's own work included.
        rate: Floating-point operations per second by precision, as the maker states them.
        bandwidth: Bytes per second, as stated.
        share: What products of these sizes reach of the stated rates.
    """

    launch: float
    rate: dict[str, float]
    bandwidth: float
    share: float = 0.4


GPUS = {
    "A100": Gpu(8e-6, {"fp32": 19.5e12, "fp16": 312e12}, 1.56e12),
    "RTX4090": Gpu(6e-6, {"fp32": 82e12, "fp16": 165e12}, 1.01e12),
    "T4": Gpu(10e-6, {"fp32": 8.1e12, "fp16": 65e12}, 0.32e12),
}


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *more: Any, **options: Any
) -> Tensor:
    """Attention in one kernel, as on a GPU; on ``meta`` torch would take it apart."""
    causal = options.get("is_causal", False)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return kernel(query, key, value, 0.0, causal, attn_mask=attn_mask)[0]


class Trace(TorchDispatchMode):
    """Kernels with their operations and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Kernels = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        out = function(*args, **kwargs)
        packet = function.overloadpacket
        if not (function.is_view or packet in NO_KERNELS):
            count = flop_registry.get(packet)
            flops = count(*args, **kwargs, out_val=out) if count else 0
            tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, Tensor)]
            self.kernels.append((flops, sum(x.numel() * x.element_size() for x in tensors)))
        return out


def trace(
    way: Any, classes: int, precision: str, small: bool, prompts: int = 1, place: Any = "end"
) -> Kernels:
    """The kernels of a forward and backward pass of CoOp's prompts, or of several per class."""
    with torch.device("meta"):
        model = random_clip("ViT-B-16", small, image_tower=False).to(HALF[precision])
    encoder = TextEncoder(model, way, budget=1 << 50)
    layout = context_layout(class_names(classes), open_clip.get_tokenizer("ViT-B-16"), 16, place)
    context = nn.Parameter(torch.empty(prompts, 16, encoder.width, device="meta"))

    def step() -> None:
        F.normalize(encoder(layout, context).float(), dim=-1).sum().backward()

    with mock.patch.object(F, "scaled_dot_product_attention", fused_attention):
        step()  # what is kept for later passes is made
        with Trace() as traced:
            step()
    return traced.kernels


def estimate(kernels: Kernels, gpu: Gpu, precision: str) -> dict[str, float]:
    """Seconds of the host, of the device, and of both side by side."""
    rate = gpu.share * gpu.rate[precision]
    device = sum(max(flops / rate, moved / gpu.bandwidth) for flops, moved in kernels)
    host = gpu.launch * len(kernels)
    return {"host": host, "device": device, "seconds": max(host, device)}


def main() -> None:
    parser = parser_of(__doc__ or "")
    parser.add_argument("--gpu", choices=list(GPUS), default="A100")
    parser.add_argument("--precision", choices=list(HALF), default="fp16")
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000])
    args = parser.parse_args()
    rows = []
    for classes in args.classes:
        times = {}
        for way in ("naive", "shared"):
            kernels = trace(way, classes, args.precision, args.small)
            found = estimate(kernels, GPUS[args.gpu], args.precision)
            times[way] = found
            rows.append(
                {
                    "classes": classes,
                    "encoder": way,
                    "kernels": len(kernels),
                    "GFLOP": sum(flops for flops, _ in kernels) / 1e9,
                    "GB": sum(moved for _, moved in kernels) / 1e9,
                    "host ms": 1e3 * found["host"],
                    "device ms": 1e3 * found["device"],
                    "ms": 1e3 * found["seconds"],
                    "faster": times["naive"]["seconds"] / found["seconds"],
                    "faster, both graphed": times["naive"]["device"] / found["device"],
                }
            )
    report(args, rows, gpu=args.gpu, precision=args.precision)


if __name__ == "__main__":
    main()
