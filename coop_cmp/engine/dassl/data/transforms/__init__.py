"""Image transforms by name."""

from .transforms import (
    AVAI_CHOICES,
    INTERPOLATION_MODES,
    Cutout,
    GaussianNoise,
    InstanceNormalization,
    Random2DTranslation,
    build_transform,
)

__all__ = [
    "AVAI_CHOICES",
    "INTERPOLATION_MODES",
    "Cutout",
    "GaussianNoise",
    "InstanceNormalization",
    "Random2DTranslation",
    "build_transform",
]
