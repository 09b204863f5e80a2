"""``coop-cmp``: its commands, and how they end."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace

import pytest

from coop_cmp import cli
from coop_cmp.errors import DataError, UserError

VAGUE = ["of", "a", "an", "the", "its", "what", "where", "which", "such", "only", "default:"]
LOOK = """
import sys
from coop_cmp import cli
for words in ([], *([name] for name in cli.COMMANDS)):
    try:
        cli.main([*words, "--help"])
    except SystemExit as stop:
        assert not stop.code
    slow = {"torch", "pandas", "matplotlib", "open_clip"} if words else {"torch", "numpy", "yaml"}
    print("loaded:", *slow & set(sys.modules))
"""


def test_help_loads_nothing_slow():
    command = [sys.executable, "-c", LOOK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, *others = done.stdout.split("loaded:")
    assert all(f"\n  {name} " in first for name in cli.COMMANDS)
    assert len(others) == len(cli.COMMANDS) + 1
    for name, shown in zip(cli.COMMANDS, others, strict=False):
        assert shown.startswith(f"\nusage: coop-cmp {name} ")
    assert others[-1] == "\n"


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a command and of its verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from arguments_of(inner)
        elif not isinstance(action, argparse._HelpAction):
            yield action


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_argument_says_what_it_is(name):
    parser = argparse.ArgumentParser()
    import_module(f"coop_cmp.cli.{cli._MODULES.get(name, name)}").add_arguments(parser)
    for action in arguments_of(parser):
        first = (action.help or "").split()[:1]
        assert first, action.dest
        assert first[0] not in VAGUE, action.help


def test_an_unknown_command_is_told_with_the_closest(capsys):
    assert cli.main(["sweeps"]) == 2
    assert 'no command "sweeps"' in (error := capsys.readouterr().err)
    assert 'did you mean "sweep"' in error


@pytest.fixture
def fails(monkeypatch):
    """Let the command ``store`` raise an error."""

    def fail(error: BaseException) -> None:
        def run(args: object) -> int:
            raise error

        command = SimpleNamespace(__doc__="", add_arguments=lambda parser: None, run=run)
        monkeypatch.setattr(cli, "import_module", lambda name: command)

    monkeypatch.setenv(cli.DEBUG, "")
    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("no such thing"), 2),
        (DataError("a bad image"), 65),
        (FileNotFoundError(2, "No such file", "a.npz"), 2),
        (OSError(5, "Input/output error", "a.npz"), 74),
    ],
)
def test_a_mistake_is_one_line_and_with_debug_its_traceback(fails, capsys, error, code):
    fails(error)
    assert cli.main(["store"]) == code
    line = capsys.readouterr().err
    assert line.startswith("error: ")
    assert line.count("\n") == 1
    assert cli.main(["store", "--debug"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert shown.endswith(line)


def test_the_environment_asks_for_tracebacks(fails, capsys, monkeypatch):
    fails(UserError("no such thing"))
    monkeypatch.setenv(cli.DEBUG, "1")
    assert cli.main(["store"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyError("a bug"), ImportError("a bug")])
def test_a_defect_is_raised_with_its_traceback(fails, error):
    fails(error)
    with pytest.raises(type(error), match="a bug"):
        cli.main(["store"])


def test_ctrl_c_says_that_the_command_resumes(fails, capsys):
    fails(KeyboardInterrupt())
    assert cli.main(["store"]) == 130
    assert "the same command resumes" in capsys.readouterr().err


def test_data_sets_are_names_or_a_grid_file(tmp_path):
    for words in (["a.yaml", "b.yaml"], ["digits", "a.yaml"]):
        with pytest.raises(UserError, match=r"a\.yaml: a grid file is given alone"):
            cli.dispatch(["sweep", *words, "--output", str(tmp_path)])


def test_a_sweep_is_over_all_shots_and_the_papers_data_sets(tmp_path, capsys):
    words = ["--trainers", "CoOp", "--seeds", "1", "--dry-run", "--devices", "cpu"]
    assert cli.dispatch(["sweep", "all", *words, "--output", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "55 runs, 55 to do" in shown
    assert "imagenet/CoOp/ViT-B-16_16shots/seed1" in shown
