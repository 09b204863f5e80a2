"""Running averages of what a training loop reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch


class AverageMeter:
    """The last value and the mean of all (``ema``: an exponential mean, 0.9 old + 0.1 new)."""

    def __init__(self, ema: bool = False) -> None:
        self.ema = ema
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.val: float = 0
        self.avg: float = 0
        self.sum: float = 0
        self.count: int = 0

    def update(self, val: float | torch.Tensor, n: int = 1) -> None:
        """Add ``val`` (a number or a tensor with one element), which stands for ``n`` samples."""
        value = val.item() if isinstance(val, torch.Tensor) else val
        self.val = value
        self.sum += value * n
        self.count += n
        if self.ema:
            self.avg = 0.9 * self.avg + 0.1 * value
        else:
            self.avg = self.sum / self.count


class MetricMeter:
    """One AverageMeter per name; ``str()`` gives ``name value (mean) ...``."""

    def __init__(self, delimiter: str = " ") -> None:
        self.meters: defaultdict[str, AverageMeter] = defaultdict(AverageMeter)
        self.delimiter = delimiter

    def update(self, input_dict: Mapping[str, Any] | None) -> None:
        """Add one value per name; None adds nothing."""
        if input_dict is None:
            return
        if not isinstance(input_dict, Mapping):
            raise TypeError(
                "Input to MetricMeter.update() must be a dictionary, "
                f"got {type(input_dict).__name__}"
            )
        for name, value in input_dict.items():
            self.meters[name].update(value)

    def __str__(self) -> str:
        return self.delimiter.join(
            f"{name} {meter.val:.4f} ({meter.avg:.4f})" for name, meter in self.meters.items()
        )
