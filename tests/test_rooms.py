"""Which room of the library may call which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[1] / "coop_cmp"
FORBIDDEN = {
    "results": ("sweep", "report", "commands"),
    "sweep": ("report", "commands"),
    "report": ("sweep", "commands"),
    "metrics": ("sweep", "report", "commands", "clip"),
    "losses": ("results", "sweep", "report", "commands", "clip", "metrics"),
    "posthoc": ("sweep", "report", "commands", "clip"),
    "clip": ("results", "sweep", "report", "commands", "metrics"),
}


def imported(file: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


@pytest.mark.parametrize("room", FORBIDDEN)
def test_arrows_point_one_way(room):
    files = sorted((LIBRARY / room).rglob("*.py"))
    assert files
    for file in files:
        for other in FORBIDDEN[room]:
            name = f"coop_cmp.{other}"
            wrong = [m for m in imported(file) if m == name or m.startswith(f"{name}.")]
            assert wrong == [], f"{file.relative_to(LIBRARY)} imports {wrong}"


def test_the_library_imports_no_trainers_and_no_data_sets():
    for file in sorted(LIBRARY.rglob("*.py")):
        tops = {module.partition(".")[0] for module in imported(file)}
        assert not tops & {"trainers", "datasets", "train"}, file
