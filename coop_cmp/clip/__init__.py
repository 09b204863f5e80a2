"""CLIP for prompt learning: loading, prompts, and the exact shared-prefix text encoder."""

from coop_cmp.clip.load import LoadedCLIP, add_models, load_clip, read_state_dict
from coop_cmp.clip.prompts import PromptLayout, clean, context_layout, text_layout, word_vectors
from coop_cmp.clip.templates import ensemble_of, template_of
from coop_cmp.clip.text import TextEncoder
from coop_cmp.clip.vision import check_vision_transformer, prompted_image_features

__all__ = [
    "LoadedCLIP",
    "PromptLayout",
    "TextEncoder",
    "add_models",
    "check_vision_transformer",
    "clean",
    "context_layout",
    "ensemble_of",
    "load_clip",
    "prompted_image_features",
    "read_state_dict",
    "template_of",
    "text_layout",
    "word_vectors",
]
