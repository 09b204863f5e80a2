"""The model of :class:`dassl.engine.SimpleTrainer`."""

from __future__ import annotations

from typing import Any

from dassl.modeling import build_backbone, build_head
from torch import Tensor, nn
from yacs.config import CfgNode


class SimpleNet(nn.Module):
    """A backbone, an optional head, and a linear classifier if ``num_classes`` > 0."""

    def __init__(self, cfg: CfgNode, model_cfg: CfgNode, num_classes: int, **kwargs: Any) -> None:
        super().__init__()
        self.backbone = build_backbone(
            model_cfg.BACKBONE.NAME,
            verbose=cfg.VERBOSE,
            pretrained=model_cfg.BACKBONE.PRETRAINED,
            **kwargs,
        )
        self._fdim = self.backbone.out_features
        self.head = None
        head = model_cfg.HEAD
        if head.NAME and head.HIDDEN_LAYERS:
            self.head = build_head(
                head.NAME,
                verbose=cfg.VERBOSE,
                in_features=self._fdim,
                hidden_layers=head.HIDDEN_LAYERS,
                activation=head.ACTIVATION,
                bn=head.BN,
                dropout=head.DROPOUT,
                **kwargs,
            )
            self._fdim = self.head.out_features
        self.classifier = nn.Linear(self._fdim, num_classes) if num_classes > 0 else None

    @property
    def fdim(self) -> int:
        """Width of the features before the classifier."""
        return self._fdim

    def forward(self, x: Tensor, return_feature: bool = False) -> Any:
        """Map images [N, 3, H, W] to scores [N, num_classes] (and features [N, fdim])."""
        features = self.backbone(x)
        if self.head is not None:
            features = self.head(features)
        if self.classifier is None:
            return features
        scores = self.classifier(features)
        return (scores, features) if return_feature else scores
