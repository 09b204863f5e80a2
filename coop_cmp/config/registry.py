"""All settings by key, and how a file of a method, a loss term or a data set declares its own."""

from __future__ import annotations

import ast
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coop_cmp.config import kinds
from coop_cmp.config.kinds import Setting
from coop_cmp.errors import UserError, closest

SETTINGS: dict[str, Setting] = {}
METHODS: dict[str, Method] = {}
PRECISIONS = ("fp32", "amp", "fp16")


@dataclass(frozen=True)
class Method:
    """A trainer as the settings know it.

    Attributes:
        name: As registered in Dassl.
        node: Its own settings are ``TRAINER.<node>``.
        trains: False for a method that learns nothing, so that shots and seeds do not matter.
        defaults: Other keys whose defaults it changes, such as OPTIM.LR.
    """

    name: str
    node: str
    trains: bool = True
    defaults: Mapping[str, Any] = field(default_factory=dict)


def declare(node: str, **settings: Setting) -> None:
    """Declare the settings of a config node, e.g. ``declare("TRAINER.CMP", LAMBDA=number(...))``.

    The call stands at the top level of its file and uses nothing but literals and the names of
    `coop_cmp.config`, so that `read_declarations` can take it up without importing the file.
    """
    for name, setting in settings.items():
        key = f"{node}.{name}" if node else name
        try:
            setting.read(setting.default)
        except ValueError as error:
            raise ValueError(f"{key}: its default is not {setting.expected}") from error
        if SETTINGS.setdefault(key, setting) != setting:
            raise ValueError(f"{key} is declared twice, in different ways")


def declare_trainer(
    name: str,
    node: str = "",
    trains: bool = True,
    defaults: Mapping[str, Any] | None = None,
    **settings: Setting,
) -> Method:
    """Declare a trainer with its own settings, ``TRAINER.<NAME>``; see `declare`.

    Args:
        name: As registered in Dassl.
        node: Its config node, if that is not its name in capitals.
        trains: False for a method that learns nothing.
        defaults: Other keys whose defaults it changes, where no config file is given.
    """
    changed = {
        key: read(key, value, f"defaults of {name}") for key, value in (defaults or {}).items()
    }
    method = Method(name, node or name.upper(), trains, changed)
    declare(f"TRAINER.{method.node}", **settings)
    if METHODS.setdefault(name, method) != method:
        raise ValueError(f"the trainer {name} is declared twice, in different ways")
    return method


def read_declarations(*folders: Path) -> None:
    """Take up what the Python files of some folders declare, without importing them.

    Only the calls of `declare` and `declare_trainer` are run, not what is around them: a sweep or a
    table knows every setting at once, where importing the methods loads torch for seconds.
    """
    offered = {name: getattr(kinds, name) for name in vars(kinds) if not name.startswith("_")}
    offered |= {"declare": declare, "declare_trainer": declare_trainer, "PRECISIONS": PRECISIONS}
    for file in sorted(file for folder in folders for file in folder.glob("*.py")):
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError) as error:
            raise UserError(f"{file}: not Python ({error})") from error
        for statement in tree.body:
            call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            if call.func.id in ("declare", "declare_trainer"):
                eval(compile(ast.Expression(call), str(file), "eval"), offered)


def is_free(key: str) -> bool:
    """Whether the setting cannot change a number of a run's results."""
    return key in SETTINGS and SETTINGS[key].free


def read(key: str, value: Any, where: str = "") -> Any:
    """``value`` as the kind of ``key``.

    Args:
        where: What the value stands in, for the message.

    Raises:
        UserError: There is no such key, or the value is not what it takes.
    """
    prefix = f"{where}: " if where else ""
    if key not in SETTINGS:
        raise UserError(f"{prefix}{unknown(key, SETTINGS)}")
    setting = SETTINGS[key]
    try:
        return setting.read(value)
    except ValueError as error:
        got = " ".join(reprlib.repr(value).split())[:100]  # short, whatever the value holds
        hint = f"; {error}" if str(error) else ""
        raise UserError(f"{prefix}{key} must be {setting.expected}, got {got}{hint}") from None


def read_all(options: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Read the values of several keys; the first wrong one is refused."""
    return {str(key): read(str(key), value, where) for key, value in options.items()}


def unknown(key: str, known: Iterable[str]) -> str:
    """The message for a key that there is not."""
    return f'there is no config key "{key[:100]}"{closest(key, known)}'
