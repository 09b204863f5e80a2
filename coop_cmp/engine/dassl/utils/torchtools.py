"""Checkpoints and layers, under the module path that checkouts import them from."""

from .checkpoint import (
    load_checkpoint,
    load_pretrained_weights,
    resume_from_checkpoint,
    save_checkpoint,
)
from .networks import (
    count_num_param,
    init_network_weights,
    open_all_layers,
    open_specified_layers,
)

__all__ = [
    "count_num_param",
    "init_network_weights",
    "load_checkpoint",
    "load_pretrained_weights",
    "open_all_layers",
    "open_specified_layers",
    "resume_from_checkpoint",
    "save_checkpoint",
]
