"""The settings in words: for ``--help`` and for docs/settings.md."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from coop_cmp.config.kinds import Setting, Text
from coop_cmp.config.registry import SETTINGS


def help_text() -> str:
    """All settings with their defaults, a line or two each."""
    lines = ["settings, each given as KEY VALUE; the default stands behind the key:"]
    for key, setting in SETTINGS.items():
        lines.append(f"  {key} {_default(setting)}")
        lines += textwrap.wrap(
            _meaning(setting), 92, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return "\n".join(lines)


def page(settings: Mapping[str, Setting]) -> str:
    """A table in Markdown."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, setting in settings.items():
        mark = " \\*" if setting.free else ""
        lines.append(f"| `{key}`{mark} | `{_default(setting)}` | {_meaning(setting)} |")
    return "\n".join(lines)


def _default(setting: Setting) -> str:
    return repr(setting.default).replace("'", '"')


def _meaning(setting: Setting) -> str:
    return setting.doc if type(setting) is Text else f"{setting.doc} ({setting.expected})"
