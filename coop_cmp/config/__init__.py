"""Every setting in one place: kind, range, choices, default and meaning of each key.

Config files, command lines, grids, the trainers' own checks, ``--help`` and the documentation read
it. A method, a loss term or a data set declares its settings in its own file (`declare_trainer`,
`declare`); they are known once that file is imported.
"""

from coop_cmp.config import dassl_keys, own  # noqa: F401  (declares what all methods share)
from coop_cmp.config.registry import (
    METHODS,
    PRECISIONS,
    SETTINGS,
    Method,
    add_settings,
    check_cfg,
    declare,
    declare_trainer,
    flatten,
    is_free,
    read,
)
from coop_cmp.config.setting import (
    Setting,
    choice,
    flag,
    integer,
    number,
    row,
    several,
    text,
)

__all__ = [
    "METHODS",
    "PRECISIONS",
    "SETTINGS",
    "Method",
    "Setting",
    "add_settings",
    "check_cfg",
    "choice",
    "declare",
    "declare_trainer",
    "flag",
    "flatten",
    "integer",
    "is_free",
    "number",
    "read",
    "row",
    "several",
    "text",
]
