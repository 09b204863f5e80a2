"""Which room of the library may call which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[1] / "coop_cmp"
TOP = ("sweep", "report", "predict", "cli")
FORBIDDEN = {
    "config": ("losses", "metrics", "clip", "features", "runs", "calibrate", "checkout", *TOP),
    "losses": ("metrics", "clip", "features", "runs", "calibrate", "checkout", *TOP),
    "metrics": ("losses", "clip", "features", "runs", "calibrate", "checkout", *TOP),
    "clip": ("metrics", "features", "runs", "calibrate", "checkout", *TOP),
    "features": ("metrics", "runs", "calibrate", "checkout", *TOP),
    "runs": ("clip", "features", "calibrate", "checkout", *TOP),
    "calibrate": ("clip", "features", "checkout", *TOP),
    "sweep": ("report", "predict", "calibrate", "checkout", "cli"),
    "report": ("sweep", "predict", "calibrate", "checkout", "cli"),
    "predict": ("sweep", "report", "checkout", "cli"),
    "checkout": ("sweep", "report", "predict", "calibrate", "cli"),
}


def imported(file: Path) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
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


@pytest.mark.parametrize("name", ["errors", "files"])
def test_the_ground_floor_stands_on_nothing_of_ours(name):
    ours = {module for module in imported(LIBRARY / f"{name}.py") if module.startswith("coop_cmp")}
    assert ours <= {"coop_cmp.errors", "coop_cmp.errors.UserError"}


def test_only_what_runs_them_imports_trainers_and_data_sets():
    users = ("predict", "cli", "sweep")
    for file in sorted(LIBRARY.rglob("*.py")):
        tops = {module.partition(".")[0] for module in imported(file)}
        assert not tops & {"trainers", "datasets", "train", "tools", "tests"}, file
        if file.relative_to(LIBRARY).parts[0] not in users:
            ours = {".".join(module.split(".")[:2]) for module in imported(file)}
            assert not ours & {"coop_cmp.trainers", "coop_cmp.datasets"}, file
