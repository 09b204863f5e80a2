"""Show the settings below a key with their defaults and what they may be, as a table.

coop-cmp settings OPTIM
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from coop_cmp.config.setting import Setting
from coop_cmp.errors import UserError, closest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "key", nargs="?", default="", help="beginning of keys, such as OPTIM; default: all"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    import coop_cmp.datasets
    import coop_cmp.runs.evaluator
    import coop_cmp.trainers  # noqa: F401 - these load torch, and declare their settings
    from coop_cmp.config import SETTINGS

    wanted = args.key.upper()
    found = {key: setting for key, setting in SETTINGS.items() if key.startswith(wanted)}
    if not found:
        nodes = {key.rpartition(".")[0] for key in SETTINGS}
        hint = closest(wanted, [*nodes, *SETTINGS])
        raise UserError(f'no setting begins with "{args.key}"{hint}')
    print(page(found))
    return 0


def page(settings: Mapping[str, Setting]) -> str:
    """Return a table in Markdown, sorted by key, the settings of a node together."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, setting in sorted(settings.items(), key=lambda item: item[0].rpartition(".")[::2]):
        mark = " \\*" if setting.free else ""
        default = repr(setting.default).replace("'", '"')
        takes = "" if setting.expected == "text" else f" ({setting.expected})"
        lines.append(f"| `{key}`{mark} | `{default}` | {setting.doc}{takes} |")
    return "\n".join(lines)
