"""CLIP for prompt learning: loading, prompts, and the exact shared-prefix text encoder."""

from coop_cmp.clip.load import (
    LoadedCLIP,
    add_models,
    check_preprocessing,
    is_small,
    load_clip,
    read_state_dict,
)
from coop_cmp.clip.prompts import (
    PromptLayout,
    clean,
    context_layout,
    ensemble_of,
    random_context,
    template_layout,
    template_of,
    text_layout,
    word_vectors,
)
from coop_cmp.clip.text import TextEncoder, check_text_encoder
from coop_cmp.clip.vision import ImageTower

__all__ = [
    "ImageTower",
    "LoadedCLIP",
    "PromptLayout",
    "TextEncoder",
    "add_models",
    "check_preprocessing",
    "check_text_encoder",
    "clean",
    "context_layout",
    "ensemble_of",
    "is_small",
    "load_clip",
    "random_context",
    "read_state_dict",
    "template_layout",
    "template_of",
    "text_layout",
    "word_vectors",
]
