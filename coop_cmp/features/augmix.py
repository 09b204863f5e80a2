"""AugMix: Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and
Uncertainty", ICLR 2020; at the severity and with the mixing that test-time prompt tuning uses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

CHAINS, DEEPEST = 3, 3
# Strengths at severity 1, a tenth of what each operation can do at most: degrees, share of the
# other axis, share of the image's side, and brightness.
ROTATE, SHEAR, TRANSLATE, SOLARIZE = 3.0, 0.03, 1 / 30, 25.6
POSTERIZE_BITS = 4  # severity 1 never takes one away


def _uniform(low: float = 0.0, high: float = 1.0) -> float:
    return low + (high - low) * torch.rand(()).item()


def _strength(most: float) -> float:
    return most * _uniform(0.1)


def _signed(value: float) -> float:
    return -value if _uniform() > 0.5 else value


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR
    )


def _rotate(image: Image.Image) -> Image.Image:
    return image.rotate(_signed(int(_strength(ROTATE))), resample=Image.Resampling.BILINEAR)


def _solarize(image: Image.Image) -> Image.Image:
    return ImageOps.solarize(image, 256 - int(_strength(SOLARIZE)))


def _posterize(image: Image.Image) -> Image.Image:
    return ImageOps.posterize(image, POSTERIZE_BITS)


def _shear_x(image: Image.Image) -> Image.Image:
    return _affine(image, 1, _signed(_strength(SHEAR)), 0, 0, 1, 0)


def _shear_y(image: Image.Image) -> Image.Image:
    return _affine(image, 1, 0, 0, _signed(_strength(SHEAR)), 1, 0)


def _translate_x(image: Image.Image) -> Image.Image:
    return _affine(image, 1, 0, _signed(int(_strength(TRANSLATE * image.width))), 0, 1, 0)


def _translate_y(image: Image.Image) -> Image.Image:
    return _affine(image, 1, 0, 0, 0, 1, _signed(int(_strength(TRANSLATE * image.height))))


OPERATIONS: tuple[Callable[[Image.Image], Image.Image], ...] = (
    ImageOps.autocontrast,
    ImageOps.equalize,
    _posterize,
    _rotate,
    _solarize,
    _shear_x,
    _shear_y,
    _translate_x,
    _translate_y,
)


class AugMix:
    """A tensor [3, H, W] from 0 to 1: an image mixed with three chains of random operations.

    The weights of the chains are drawn from Dirichlet(1, 1, 1) and the share of the image itself
    from Beta(1, 1); a chain has one to three operations. All weights sum to 1, so that it makes no
    difference whether pixels are normalised before the mixing, as published, or after it.
    """

    def __call__(self, image: Image.Image) -> Tensor:
        own = _uniform()  # Beta(1, 1) is the uniform distribution
        weights = torch.empty(CHAINS, dtype=torch.float64).exponential_()
        weights *= (1 - own) / weights.sum()  # shares of exponentials follow Dirichlet(1, 1, 1)
        mixed = np.asarray(image) * np.float32(own / 255)
        for weight in weights.tolist():
            changed = image
            for _ in range(int(torch.randint(1, DEEPEST + 1, ()))):
                changed = OPERATIONS[int(torch.randint(len(OPERATIONS), ()))](changed)
            mixed += np.asarray(changed) * np.float32(weight / 255)
        return torch.from_numpy(mixed).permute(2, 0, 1).contiguous()

    def __repr__(self) -> str:
        return f"AugMix(chains={CHAINS}, severity=1)"
