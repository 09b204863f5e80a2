"""Registry, logging, seeds, meters, files and checkpoints."""

from .checkpoint import (
    load_checkpoint,
    load_pretrained_weights,
    resume_from_checkpoint,
    save_checkpoint,
)
from .environment import collect_env_info, set_random_seed
from .files import (
    check_isfile,
    download_url,
    listdir_nohidden,
    mkdir_if_missing,
    read_json,
    tolist_if_not,
    write_json,
)
from .images import read_image
from .logger import Logger, setup_logger
from .meters import AverageMeter, MetricMeter
from .networks import (
    count_num_param,
    init_network_weights,
    open_all_layers,
    open_specified_layers,
)
from .registry import Registry, check_availability, get_most_similar_str_to_a_from_b

__all__ = [
    "AverageMeter",
    "Logger",
    "MetricMeter",
    "Registry",
    "check_availability",
    "check_isfile",
    "collect_env_info",
    "count_num_param",
    "download_url",
    "get_most_similar_str_to_a_from_b",
    "init_network_weights",
    "listdir_nohidden",
    "load_checkpoint",
    "load_pretrained_weights",
    "mkdir_if_missing",
    "open_all_layers",
    "open_specified_layers",
    "read_image",
    "read_json",
    "resume_from_checkpoint",
    "save_checkpoint",
    "set_random_seed",
    "setup_logger",
    "tolist_if_not",
    "write_json",
]
