"""Make the reference pages while the site is built: settings, commands and the API."""

from __future__ import annotations

import io
from contextlib import redirect_stdout, suppress
from typing import Any

from mkdocs.structure.files import File, Files

API = {
    "Penalty": [
        "coop_cmp.losses.cmp.cmp_loss",
        "coop_cmp.checkout.scope",
        "coop_cmp.checkout.twins.plug",
    ],
    "Models": ["coop_cmp.predict.predictor"],
    "Metrics": ["coop_cmp.metrics"],
    "Runs": ["coop_cmp.runs"],
    "Calibrators": ["coop_cmp.calibrate"],
}


def printed(words: list[str]) -> str:
    """Return what a command prints."""
    from coop_cmp import cli  # not above: MkDocs restores sys.path after it has loaded this file

    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        cli.dispatch(words)
    return text.getvalue()


def commands() -> str:
    """Return a page with the ``--help`` of each command."""
    from coop_cmp.cli import COMMANDS

    parts = [f"## {name}\n\n```text\n{printed([name, '--help'])}```\n" for name in sorted(COMMANDS)]
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
    settings = "# Settings\n\nKeys with \\* are free: they cannot change a result.\n\n"
    settings += printed(["settings"])
    pages = {"commands": commands(), "settings": settings, "api": api()}
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files
