"""The settings in words: for ``--help`` and for the documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from coop_cmp.config.registry import SETTINGS
from coop_cmp.config.setting import Setting


def help_text() -> str:
    """Return all settings with their defaults, a line or two each."""
    lines = ["settings, each given as KEY VALUE; the default stands after the key:"]
    for key, setting in _by_node(SETTINGS):
        lines.append(f"  {key} {_default(setting)}")
        lines += textwrap.wrap(
            _meaning(setting), 92, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return "\n".join(lines)


def page(settings: Mapping[str, Setting]) -> str:
    """Return a table in Markdown."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, setting in _by_node(settings):
        mark = " \\*" if setting.free else ""
        lines.append(f"| `{key}`{mark} | `{_default(setting)}` | {_meaning(setting)} |")
    return "\n".join(lines)


def _by_node(settings: Mapping[str, Setting]) -> list[tuple[str, Setting]]:
    """Return the settings in alphabetical order, those of a node together."""
    return sorted(settings.items(), key=lambda item: item[0].rpartition(".")[::2])


def _default(setting: Setting) -> str:
    return repr(setting.default).replace("'", '"')


def _meaning(setting: Setting) -> str:
    return setting.doc if setting.expected == "text" else f"{setting.doc} ({setting.expected})"
