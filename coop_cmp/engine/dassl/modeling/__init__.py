"""Backbones and heads for :class:`dassl.engine.SimpleNet`."""

from .backbone import BACKBONE_REGISTRY, Backbone, build_backbone
from .head import HEAD_REGISTRY, build_head

__all__ = ["BACKBONE_REGISTRY", "HEAD_REGISTRY", "Backbone", "build_backbone", "build_head"]
