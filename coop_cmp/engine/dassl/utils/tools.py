"""Seeds, files and names, under the module path that checkouts import them from."""

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
from .registry import check_availability, get_most_similar_str_to_a_from_b

__all__ = [
    "check_availability",
    "check_isfile",
    "collect_env_info",
    "download_url",
    "get_most_similar_str_to_a_from_b",
    "listdir_nohidden",
    "mkdir_if_missing",
    "read_image",
    "read_json",
    "set_random_seed",
    "tolist_if_not",
    "write_json",
]
