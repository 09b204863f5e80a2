"""Training and testing on stored image features, wherever nothing that is learned changes them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from dassl.engine import TrainerX
from torch import Tensor

from coop_cmp.clip.views import FrozenFeatures
from coop_cmp.errors import UserError


class FeatureTrainer(TrainerX):
    """Replaces images by their features in the batches of its loaders.

    A child has a model with ``visual`` and ``frozen_image_tower``, which takes features [B, E] in
    place of images [B, 3, H, W], and implements :meth:`encode_image`.
    """

    model: Any
    precision: Any

    def encode_image(self, image: Tensor) -> Tensor:
        """Features [B, E] of images [B, 3, H, W], as in a test."""
        raise NotImplementedError

    @cached_property
    def features(self) -> FrozenFeatures | None:
        """What serves features; None if they change in training."""
        if self.model.frozen_image_tower:
            return FrozenFeatures(self.cfg, self.model.visual, self.encode_image, self.precision)
        if self.cfg.MODEL.FEATURE_STORE:
            print(f"Feature store: not for {type(self).__name__}, which changes image features")
        return None

    def before_train(self) -> None:
        """Replace training images by cached views, if INPUT.CACHED_VIEWS asks for them."""
        self.need_validation()
        super().before_train()
        views = self.cfg.INPUT.CACHED_VIEWS
        if views and self.features is None:
            name = type(self).__name__
            raise UserError(f"INPUT.CACHED_VIEWS must be 0 for {name}: it changes image features")
        if views and self.features is not None:
            self.train_loader_x = self.features.train_loader(self.train_loader_x, views)

    def need_validation(self) -> None:
        """Refuse to take test images for validation, as Dassl does where there are no others."""
        node = self.cfg.TEST
        if self.val_loader is None and "val" in (
            node.SPLIT,
            node.FINAL_MODEL.removeprefix("best_"),
        ):
            raise UserError(
                f"{self.cfg.DATASET.NAME} has no validation images, which TEST.SPLIT val and "
                "TEST.FINAL_MODEL best_val need"
            )

    @torch.no_grad()
    def test(self, split: str | None = None) -> Any:
        """Evaluate, on features from the store where there is one."""
        self.need_validation()
        if self.features is not None:
            is_val = (split or self.cfg.TEST.SPLIT) == "val"
            name = "val_loader" if is_val else "test_loader"
            setattr(self, name, self.features.test_loader(getattr(self, name)))
        return super().test(split)
