"""Training and testing on stored image features, wherever nothing that is learned changes them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from dassl.engine import TrainerX
from torch import Tensor
from torch.utils.data import DataLoader

from coop_cmp.errors import DataError, UserError
from coop_cmp.features.loaders import FeatureLoaders
from coop_cmp.features.views import seeded_views


class FeatureTrainer(TrainerX):
    """Replaces images by their features in the batches of its loaders.

    A child has a model with ``visual`` and ``frozen_image_tower``, which takes features [B, E] in
    place of images [B, 3, H, W], and implements :meth:`encode_image`.
    """

    model: Any
    precision: Any
    epoch_sampler: Any = None  # has to be told the epoch, if views depend on it

    def encode_image(self, image: Tensor) -> Tensor:
        """Features [B, E] of images [B, 3, H, W], as in a test."""
        raise NotImplementedError

    @cached_property
    def features(self) -> FeatureLoaders | None:
        """What serves features; None if they change in training."""
        if self.model.frozen_image_tower:
            return FeatureLoaders(self.cfg, self.model.visual, self.encode_image, self.precision)
        if self.cfg.MODEL.FEATURE_STORE:
            print(f"Feature store: not for {type(self).__name__}, which changes image features")
        return None

    def check_cfg(self, cfg: Any) -> None:
        super().check_cfg(cfg)
        loader, node = cfg.DATALOADER, cfg.INPUT
        if loader.TEST.SAMPLER != "SequentialSampler":
            raise UserError(
                "DATALOADER.TEST.SAMPLER must be SequentialSampler, since results are stored in "
                f"the order of the test set, got {loader.TEST.SAMPLER}"
            )
        if loader.K_TRANSFORMS != 1:
            raise UserError(
                f"DATALOADER.K_TRANSFORMS must be 1 for {cfg.TRAINER.NAME}, which trains on one "
                f"view of an image at a time, got {loader.K_TRANSFORMS}"
            )
        if node.SHARED_VIEWS and node.VIEW_SEED != "image":
            raise UserError(
                "INPUT.SHARED_VIEWS needs views that every run can make again: a seed (--seed) and "
                f'INPUT.VIEW_SEED "image", got {cfg.SEED} and "{node.VIEW_SEED}"; set '
                "INPUT.SHARED_VIEWS False"
            )

    def build_data_loader(self) -> None:
        """Make the loaders; those of training draw views by seed, epoch and image."""
        try:
            super().build_data_loader()
        except UserError as error:
            raise DataError(str(error)) from error
        except ValueError as error:  # a sampler that does not suit the data or the batch
            raise UserError(str(error)) from error
        cfg, loader = self.cfg, self.train_loader_x
        if cfg.INPUT.UPRIGHT and not hasattr(getattr(loader, "dataset", None), "read"):
            raise UserError("INPUT.UPRIGHT needs the engine of this package, not upstream Dassl")
        if cfg.INPUT.VIEW_SEED == "image" and isinstance(loader, DataLoader):
            self.train_loader_x = seeded_views(loader, self.cfg.OPTIM.MAX_EPOCH, cfg.SEED)
            self.epoch_sampler = self.train_loader_x.batch_sampler

    def before_epoch(self) -> None:
        super().before_epoch()
        if self.epoch_sampler is not None:
            self.epoch_sampler.epoch = self.epoch

    def before_train(self) -> None:
        """Replace training images by features, if the settings ask for it."""
        self.need_validation()
        super().before_train()
        if self.cfg.INPUT.SHARED_VIEWS:
            if self.features is not None:
                self.train_loader_x = self.features.shared_loader(self.train_loader_x)
            else:
                print(f"Shared views: not for {type(self).__name__}, which changes image features")

    def resume_model_if_exist(self, directory: str) -> int:
        """Continue a run; one whose images were drawn without a seed cannot be continued."""
        epoch: int = super().resume_model_if_exist(directory)
        if 0 < epoch < self.max_epoch and self.cfg.SEED < 0 < self.cfg.DATASET.NUM_SHOTS:
            raise UserError(
                f'"{directory}" holds {epoch} of {self.max_epoch} epochs of a run without a seed, '
                "whose few-shot images would be drawn anew: begin again (--redo), with --seed if "
                "it is to survive the next time"
            )
        return epoch

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
