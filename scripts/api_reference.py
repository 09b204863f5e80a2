"""Write docs/api.md from the docstrings: ``python scripts/api_reference.py > docs/api.md``."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

MODULES = (
    "coop_cmp",
    "coop_cmp.losses",
    "coop_cmp.metrics",
    "coop_cmp.calibrate",
    "coop_cmp.predict.predictor",
    "coop_cmp.predict.selective",
    "coop_cmp.predict.export",
    "coop_cmp.runs",
    "coop_cmp.config",
    "coop_cmp.clip",
)


def names_of(module: Any) -> list[str]:
    """What a module offers: ``__all__``, or the functions and classes that are its own."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if callable(getattr(module, name))]
    own = {k: v for k, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
    return [k for k, v in own.items() if not k.startswith("_") and callable(v)]


def entry(name: str, thing: Any) -> list[str]:
    """Signature and docstring of a function, or of a class with its public methods."""
    try:
        # Annotations are strings here; people read them better without quotes.
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(thing)))
    except ValueError:
        signature = ""
    lines = [f"### `{name}`", "", "```text", f"{name}{signature}", "", inspect.getdoc(thing) or ""]
    if inspect.isclass(thing):
        for key, method in vars(thing).items():
            documented = inspect.isfunction(method) or isinstance(method, property)
            if documented and not key.startswith("_") and inspect.getdoc(method):
                first = (inspect.getdoc(method) or "").splitlines()[0]
                lines += ["", f".{key}: {first}"]
    return [*lines, "```", ""]


def main() -> None:
    """Print the page."""
    print("# Reference\n\nMade from the docstrings by `python scripts/api_reference.py`.\n")
    for path in MODULES:
        module = import_module(path)
        print(f"## {path}\n\n{(module.__doc__ or '').strip()}\n")
        for name in names_of(module):
            print("\n".join(entry(name, getattr(module, name))))


if __name__ == "__main__":
    main()
