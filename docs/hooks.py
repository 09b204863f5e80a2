"""Make the reference pages while the site is built: settings, commands and the API."""

from __future__ import annotations

import io
from contextlib import redirect_stdout, suppress
from typing import Any

from mkdocs.structure.files import File, Files

from coop_cmp import cli

API = {
    "Penalty": ["coop_cmp.cmp_loss", "coop_cmp.CMPenalty", "coop_cmp.TermScope", "coop_cmp.plug"],
    "Models": ["coop_cmp.load", "coop_cmp.predict.Model"],
    "Metrics": ["coop_cmp.metrics"],
    "Runs": ["coop_cmp.runs"],
    "Calibrators": ["coop_cmp.calibrate"],
}


def printed(words: list[str]) -> str:
    """Return what a command prints."""
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        cli.dispatch(words)
    return text.getvalue()


def commands() -> str:
    """Return a page with the ``--help`` of each command."""
    parts = [
        f"## {name}\n\n```text\n{printed([name, '--help'])}```\n" for name in sorted(cli.COMMANDS)
    ]
    return "# Commands\n\n" + "\n".join(parts)


def api() -> str:
    """Return a page of references to docstrings."""
    parts = [
        f"## {title}\n\n" + "\n".join(f"::: {name}\n" for name in names)
        for title, names in API.items()
    ]
    return "# Python\n\n" + "\n".join(parts)


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages to those of docs/."""
    pages = {"commands": commands(), "settings": printed(["settings"]), "api": api()}
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files
