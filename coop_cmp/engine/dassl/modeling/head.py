"""Layers between a backbone and its classifier, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dassl.utils import Registry, check_availability
from torch import nn

HEAD_REGISTRY = Registry("HEAD")

_ACTIVATIONS = {"relu": nn.ReLU, "leaky_relu": nn.LeakyReLU}


class MLP(nn.Sequential):
    """Linear layers, each followed by batch norm, activation and dropout as asked."""

    def __init__(
        self,
        in_features: int,
        hidden_layers: Sequence[int] | int = (),
        activation: str = "relu",
        bn: bool = True,
        dropout: float = 0.0,
    ) -> None:
        widths = [hidden_layers] if isinstance(hidden_layers, int) else list(hidden_layers)
        if not widths:
            raise ValueError("MODEL.HEAD.HIDDEN_LAYERS: expected at least one width, got none")
        check_availability(activation, list(_ACTIVATIONS))
        layers: list[nn.Module] = []
        for width in widths:
            layers.append(nn.Linear(in_features, width))
            if bn:
                layers.append(nn.BatchNorm1d(width))
            layers.append(_ACTIVATIONS[activation]())
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
            in_features = width
        super().__init__(*layers)
        self.out_features = in_features


@HEAD_REGISTRY.register()
def mlp(**kwargs: Any) -> MLP:
    """A multi-layer perceptron."""
    return MLP(**kwargs)


def build_head(name: str, verbose: bool = True, **kwargs: Any) -> Any:
    """Make the head ``name``."""
    return HEAD_REGISTRY.choose(name, "Head" if verbose else "")(**kwargs)
