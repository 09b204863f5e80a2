"""All settings by key: how a file declares its own, and how values and config trees are read."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from coop_cmp.config.setting import Setting
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


def declare(node: str, **settings: Setting) -> dict[str, Setting]:
    """Declare the settings of a config node, e.g. ``declare("TRAINER.CMP", LAMBDA=number(...))``.

    Returns:
        The settings by key.

    Raises:
        ValueError: A default is not what its setting takes, or a key is declared differently
            elsewhere.
    """
    declared = {f"{node}.{name}" if node else name: s for name, s in settings.items()}
    for key, setting in declared.items():
        try:
            setting.read(setting.default)
        except ValueError as error:
            raise ValueError(f"{key}: its default is not {setting.expected}") from error
        if SETTINGS.setdefault(key, setting) != setting:
            raise ValueError(f"{key} is declared twice, in different ways")
    return declared


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
    values = {k: read(k, value, f"defaults of {name}") for k, value in (defaults or {}).items()}
    method = Method(name, node or name.upper(), trains, values)
    declare(f"TRAINER.{method.node}", **settings)
    if METHODS.setdefault(name, method) != method:
        raise ValueError(f"the trainer {name} is declared twice, in different ways")
    return method


def is_free(key: str) -> bool:
    """Return whether the setting cannot change a number of a run's results."""
    return key in SETTINGS and SETTINGS[key].free


def read(key: str, value: Any, where: str = "") -> Any:
    """Return ``value`` as the kind of ``key``.

    Args:
        where: What the value stands in, for the message.

    Raises:
        UserError: There is no such key, or the value is not what it takes.
    """
    prefix = f"{where}: " if where else ""
    if key not in SETTINGS:
        raise UserError(f'{prefix}there is no config key "{key[:100]}"{closest(key, SETTINGS)}')
    setting = SETTINGS[key]
    try:
        return setting.read(value)
    except ValueError as error:
        got = " ".join(reprlib.repr(value).split())[:100]  # short, whatever the value holds
        hint = f"; {error}" if str(error) else ""
        raise UserError(f"{prefix}{key} must be {setting.expected}, got {got}{hint}") from None


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a config tree by their keys."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves


def assign(tree: Any, key: str, value: Any) -> None:
    """Set the leaf ``key`` of a config tree, and make the nodes above it."""
    *path, name = key.split(".")
    node = tree
    for part in path:
        if part not in node:
            node[part] = type(tree)()
        node = node[part]
    node[name] = value


def add_settings(tree: Any, under: str = "", settings: Mapping[str, Setting] | None = None) -> None:
    """Add the settings that a config tree does not have, with their defaults.

    Args:
        tree: Dassl's tree, of any version.
        under: Only settings below this node, such as ``TRAINER.CMP``.
        settings: The settings by key; all that are declared unless given.
    """
    known = flatten(tree)
    for key, setting in (SETTINGS if settings is None else settings).items():
        if key not in known and f"{key}.".startswith(f"{under}." if under else ""):
            assign(tree, key, deepcopy(setting.default))


def check_cfg(tree: Any) -> None:
    """Refuse a config tree in which a declared setting has a value that it does not take."""
    for key, value in flatten(tree).items():
        if key in SETTINGS:
            read(key, value)
