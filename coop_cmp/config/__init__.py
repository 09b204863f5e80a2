"""Every setting in one place: kind, range, choices, default and meaning of each key.

Config files, command lines, grids, the trainers' own checks, ``--help`` and docs/settings.md read
it. A method, a loss term or a data set declares its settings in its own file (`declare_trainer`,
`declare`). Nothing here needs torch.
"""

from coop_cmp.config import common
from coop_cmp.config.kinds import (
    Setting,
    Template,
    choice,
    flag,
    integer,
    literal,
    number,
    several,
    text,
)
from coop_cmp.config.registry import (
    METHODS,
    PRECISIONS,
    SETTINGS,
    Method,
    declare,
    declare_trainer,
    is_free,
    read,
    read_all,
    read_declarations,
    unknown,
)

__all__ = [
    "METHODS",
    "PRECISIONS",
    "SETTINGS",
    "Method",
    "Setting",
    "Template",
    "choice",
    "common",
    "declare",
    "declare_trainer",
    "flag",
    "integer",
    "is_free",
    "literal",
    "number",
    "read",
    "read_all",
    "read_declarations",
    "several",
    "text",
    "unknown",
]
