"""Feature extractors by name."""

from __future__ import annotations

from typing import Any

from dassl.utils import Registry
from torch import Tensor, nn
from torchvision import models

BACKBONE_REGISTRY = Registry("BACKBONE")


class Backbone(nn.Module):
    """A module whose output has ``out_features`` columns; children set ``_out_features``."""

    _out_features: int | None = None

    @property
    def out_features(self) -> int | None:
        """Width of the features."""
        return self._out_features


class _ResNet(Backbone):
    """torchvision's residual network without its classifier."""

    def __init__(self, name: str, pretrained: bool) -> None:
        super().__init__()
        self.net = models.get_model(name, weights="IMAGENET1K_V1" if pretrained else None)
        self._out_features = self.net.fc.in_features
        self.net.fc = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map images [N, 3, H, W] to features [N, out_features]."""
        return self.net(x)


@BACKBONE_REGISTRY.register()
def resnet18(pretrained: bool = True, **kwargs: Any) -> Backbone:
    """ResNet-18."""
    return _ResNet("resnet18", pretrained)


@BACKBONE_REGISTRY.register()
def resnet50(pretrained: bool = True, **kwargs: Any) -> Backbone:
    """ResNet-50."""
    return _ResNet("resnet50", pretrained)


@BACKBONE_REGISTRY.register()
def resnet101(pretrained: bool = True, **kwargs: Any) -> Backbone:
    """ResNet-101."""
    return _ResNet("resnet101", pretrained)


def build_backbone(name: str, verbose: bool = True, **kwargs: Any) -> Any:
    """Make the backbone ``name``."""
    return BACKBONE_REGISTRY.choose(name, "Backbone" if verbose else "")(**kwargs)
