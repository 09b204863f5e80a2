"""Prompt templates: one per data set, as the CoOp codebase has them, and CLIP's ensemble."""

from __future__ import annotations

from typing import Any

DEFAULT_TEMPLATE = "a photo of a {}."

# Data sets that are not listed use DEFAULT_TEMPLATE.
TEMPLATES = {
    "OxfordPets": "a photo of a {}, a type of pet.",
    "OxfordFlowers": "a photo of a {}, a type of flower.",
    "FGVCAircraft": "a photo of a {}, a type of aircraft.",
    "Food101": "a photo of {}, a type of food.",
    "DescribableTextures": "{} texture.",
    "EuroSAT": "a centered satellite photo of {}.",
    "UCF101": "a photo of a person doing {}.",
    "Digits": "a photo of the digit {}.",
    "DigitsNoise": "a photo of the digit {}.",
    "DigitsBlur": "a photo of the digit {}.",
    "DigitsRotate": "a photo of the digit {}.",
    "DigitsInvert": "a photo of the digit {}.",
}

# The seven of CLIP's eighty ImageNet templates that its authors found to be enough.
ENSEMBLE = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)


def template_of(cfg: Any) -> str:
    """The template of the configured data set; DATASET.TEMPLATE comes first where it is set."""
    own = getattr(cfg.DATASET, "TEMPLATE", "")
    return own or TEMPLATES.get(cfg.DATASET.NAME, DEFAULT_TEMPLATE)


def ensemble_of(cfg: Any) -> tuple[str, ...]:
    """The seven templates, and the data set's own beside them except on ImageNet itself."""
    if cfg.DATASET.NAME == "ImageNet":
        return ENSEMBLE
    return (*ENSEMBLE, template_of(cfg))
