"""Image transforms by name, on torchvision."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from yacs.config import CfgNode

from coop_cmp.config.dassl_keys import INTERPOLATIONS, TRANSFORMS

from .randaugment import RandAugment, RandAugment2, RandAugmentFixMatch

AVAI_CHOICES = list(TRANSFORMS)
INTERPOLATION_MODES = {name: InterpolationMode(name) for name in INTERPOLATIONS}


class Random2DTranslation:
    """With probability ``p`` enlarge to 9/8 of the size and crop at random; else just resize."""

    def __init__(
        self,
        height: int,
        width: int,
        p: float = 0.5,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    ) -> None:
        self.size = [height, width]
        self.p = p
        self.interpolation = interpolation

    def __call__(self, img: Image.Image) -> Image.Image:
        if random.random() >= self.p:
            return F.resize(img, self.size, self.interpolation)
        larger = [round(side * 1.125) for side in self.size]
        left = round(random.uniform(0, larger[1] - self.size[1]))  # in upstream's order
        top = round(random.uniform(0, larger[0] - self.size[0]))
        return F.crop(F.resize(img, larger, self.interpolation), top, left, *self.size)


class InstanceNormalization:
    """Give each channel of an image [C, H, W] zero mean and unit deviation."""

    def __init__(self, eps: float = 1e-8) -> None:
        self.eps = eps

    def __call__(self, img: Tensor) -> Tensor:
        mean = img.mean(dim=(1, 2), keepdim=True)
        return (img - mean) / (img.std(dim=(1, 2), keepdim=True) + self.eps)


class Cutout:
    """Set ``n_holes`` random squares of an image [C, H, W] to zero."""

    def __init__(self, n_holes: int = 1, length: int = 16) -> None:
        self.n_holes = n_holes
        self.length = length

    def __call__(self, img: Tensor) -> Tensor:
        img = img.clone()
        height, width = img.shape[-2:]
        for _ in range(self.n_holes):
            top = np.random.randint(height) - self.length // 2
            left = np.random.randint(width) - self.length // 2
            bottom, right = top + self.length, left + self.length
            img[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = 0
        return img


class GaussianNoise:
    """With probability ``p`` add noise to an image tensor."""

    def __init__(self, mean: float = 0.0, std: float = 0.15, p: float = 0.5) -> None:
        self.mean = mean
        self.std = std
        self.p = p

    def __call__(self, img: Tensor) -> Tensor:
        if random.random() >= self.p:
            return img
        return img + torch.randn_like(img) * self.std + self.mean


def build_transform(
    cfg: CfgNode, is_train: bool = True, choices: Sequence[str] | None = None
) -> Any:
    """Make the transform of training or test images.

    Args:
        cfg: The config.
        is_train: Training (with augmentation) or test.
        choices: Names to use instead of INPUT.TRANSFORMS.

    Returns:
        A transform from PIL image to tensor [3, H, W]; None with INPUT.NO_TRANSFORM.
    """
    if cfg.INPUT.NO_TRANSFORM:
        print("Note: no transform is applied!")
        return None
    choices = cfg.INPUT.TRANSFORMS if choices is None else choices
    for name in choices:
        assert name in AVAI_CHOICES, (
            f"INPUT.TRANSFORMS: expected names out of {AVAI_CHOICES}, got {name!r}"
        )
    steps = (_train_steps if is_train else _test_steps)(cfg, choices)
    print(f"Building transform_{'train' if is_train else 'test'}")
    for step in steps:
        print(f"+ {step}")
    return T.Compose(steps)


def _normalize(cfg: CfgNode) -> T.Normalize:
    return T.Normalize(mean=cfg.INPUT.PIXEL_MEAN, std=cfg.INPUT.PIXEL_STD)


def _test_steps(cfg: CfgNode, choices: Sequence[str]) -> list[Any]:
    interpolation, size = INTERPOLATION_MODES[cfg.INPUT.INTERPOLATION], cfg.INPUT.SIZE
    if cfg.INPUT.get("RESIZE_MODE") == "squash":
        steps: list[Any] = [T.Resize(size, interpolation=interpolation), T.ToTensor()]
    else:
        steps = [
            T.Resize(max(size), interpolation=interpolation),
            T.CenterCrop(size),
            T.ToTensor(),
        ]
    if "normalize" in choices:
        steps.append(_normalize(cfg))
    if "instance_norm" in choices:
        steps.append(InstanceNormalization())
    return steps


def _train_steps(cfg: CfgNode, choices: Sequence[str]) -> list[Any]:
    size = cfg.INPUT.SIZE
    interpolation = INTERPOLATION_MODES[cfg.INPUT.INTERPOLATION]
    steps: list[Any] = []
    if not {"random_crop", "random_resized_crop"} & set(choices):
        steps.append(T.Resize(size, interpolation=interpolation))
    if "random_translation" in choices:
        steps.append(Random2DTranslation(size[0], size[1], interpolation=interpolation))
    if "random_crop" in choices:
        steps.append(T.RandomCrop(size, padding=cfg.INPUT.CROP_PADDING))
    if "random_resized_crop" in choices:
        scale = cfg.INPUT.RRCROP_SCALE
        steps.append(T.RandomResizedCrop(size, scale=scale, interpolation=interpolation))
    if "random_flip" in choices:
        steps.append(T.RandomHorizontalFlip())
    steps += _policies(cfg, choices) + _colours(cfg, choices)
    steps.append(T.ToTensor())
    if "cutout" in choices:
        steps.append(Cutout(cfg.INPUT.CUTOUT_N, cfg.INPUT.CUTOUT_LEN))
    if "normalize" in choices:
        steps.append(_normalize(cfg))
    if "gaussian_noise" in choices:
        steps.append(GaussianNoise(cfg.INPUT.GN_MEAN, cfg.INPUT.GN_STD))
    if "instance_norm" in choices:
        steps.append(InstanceNormalization())
    return steps


def _policies(cfg: CfgNode, choices: Sequence[str]) -> list[Any]:
    steps: list[Any] = []
    for name in ("imagenet", "cifar10", "svhn"):
        if f"{name}_policy" in choices:
            steps.append(T.AutoAugment(T.AutoAugmentPolicy(name)))
    node = cfg.INPUT
    if "randaugment" in choices:
        steps.append(RandAugment(node.RANDAUGMENT_N, node.RANDAUGMENT_M))
    if "randaugment_fixmatch" in choices:
        steps.append(RandAugmentFixMatch(node.RANDAUGMENT_N))
    if "randaugment2" in choices:
        steps.append(RandAugment2(node.RANDAUGMENT_N))
    return steps


def _colours(cfg: CfgNode, choices: Sequence[str]) -> list[Any]:
    node = cfg.INPUT
    steps: list[Any] = []
    if "colorjitter" in choices:
        steps.append(
            T.ColorJitter(
                brightness=node.COLORJITTER_B,
                contrast=node.COLORJITTER_C,
                saturation=node.COLORJITTER_S,
                hue=node.COLORJITTER_H,
            )
        )
    if "randomgrayscale" in choices:
        steps.append(T.RandomGrayscale(p=node.RGS_P))
    if "gaussian_blur" in choices:
        steps.append(T.RandomApply([T.GaussianBlur(node.GB_K, sigma=(0.1, 2.0))], p=node.GB_P))
    return steps
