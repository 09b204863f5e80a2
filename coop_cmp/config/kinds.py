"""What a setting may be: its kind, its range, its default and one line on what it means.

A setting reads a value from a config file, a grid or a command line, where it is text, and gives it
back as its kind, or says what it expected. Nothing here needs torch.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coop_cmp.errors import closest


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One key of the configuration.

    Args:
        default: Its value where nothing else is said.
        doc: What it means, in a line.
        free: Whether it cannot change a number of a run's results.
    """

    default: Any
    doc: str = ""
    free: bool = False

    @property
    def expected(self) -> str:
        """The values it takes, in words."""
        raise NotImplementedError

    def read(self, value: Any) -> Any:
        """``value`` as this kind.

        Raises:
            ValueError: It is not one; the message is a hint, or empty.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Flag(Setting):
    """True or False."""

    expected = "True or False"

    def read(self, value: Any) -> bool:
        words = {"true": True, "false": False}
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        raise ValueError


@dataclass(frozen=True, kw_only=True)
class Number(Setting):
    """A finite number.

    Args:
        low: The smallest value.
        high: The largest value.
        above: Every value is larger than this.
        below: Every value is smaller than this.
        also: Values outside that range with a meaning of their own.
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    also: tuple[float, ...] = ()
    noun = "a number"

    @property
    def expected(self) -> str:
        bounds = [("from", self.low), ("above", self.above), ("to", self.high)]
        bounds.append(("below", self.below))
        words = [f"{word} {bound}" for word, bound in bounds if bound is not None]
        text = " ".join([self.noun, *words]).replace("above 0 below", "between 0 and")
        return " or ".join([text, *map(str, self.also)])

    def read(self, value: Any) -> float:
        value = self._number(literal(value))
        inside = (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        if not inside and value not in self.also:
            raise ValueError
        return value

    def _number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        try:
            value = float(value)
        except OverflowError:
            raise ValueError from None
        if not math.isfinite(value):
            raise ValueError
        return value


@dataclass(frozen=True, kw_only=True)
class Integer(Number):
    """A whole number; ``4.0`` is one."""

    noun = "a whole number"

    def _number(self, value: Any) -> int:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError
        return value


@dataclass(frozen=True, kw_only=True)
class Text(Setting):
    """Any text that can be printed."""

    expected = "text"

    def read(self, value: Any) -> str:
        if isinstance(value, str):
            known = literal(value)
            value = known if isinstance(known, str) else value
            if "\0" in value or not value.isprintable():
                raise ValueError("it holds characters that cannot be printed")
            return value
        raise ValueError


@dataclass(frozen=True, kw_only=True)
class Template(Text):
    """A prompt with one place for the class name; empty where another rule gives one."""

    expected = 'a prompt with one {} for the class name, such as "a photo of a {}."'

    def read(self, value: Any) -> str:
        value = super().read(value)
        try:
            filled = value.format("\0")
        except (ValueError, LookupError, AttributeError):
            raise ValueError("a brace that is no place is written {{ or }}") from None
        if value and filled.count("\0") != 1:
            raise ValueError
        return value


@dataclass(frozen=True, kw_only=True)
class Choice(Text):
    """One of some words."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:  # type: ignore[override]
        return " or ".join([", ".join(self.choices[:-1]), self.choices[-1]])

    def read(self, value: Any) -> str:
        value = super().read(value)
        if value not in self.choices:
            raise ValueError(closest(value, self.choices).removeprefix("; "))
        return value


@dataclass(frozen=True, kw_only=True)
class Several(Setting):
    """A list whose items are of one kind.

    Args:
        of: What each item is; its default means nothing.
        length: The number of items, if only one will do.
    """

    of: Setting
    length: int | None = None

    @property
    def expected(self) -> str:
        count = "a list" if self.length is None else f"a list of {self.length}"
        return f"{count}, each {self.of.expected}"

    def read(self, value: Any) -> list[Any] | tuple[Any, ...]:
        items = literal(value)
        if isinstance(items, str | int | float) and self.length is None and items != "":
            items = [items]
        if not isinstance(items, list | tuple) or self.length not in (None, len(items)):
            raise ValueError
        return type(self.default)(self.of.read(item) for item in items)


@dataclass(frozen=True, kw_only=True)
class Row(Setting):
    """A list with an item of its own kind at each place."""

    of: tuple[Setting, ...]

    @property
    def expected(self) -> str:
        return f"[{', '.join(item.expected for item in self.of)}]"

    def read(self, value: Any) -> list[Any]:
        items = literal(value)
        if not isinstance(items, list | tuple) or len(items) != len(self.of):
            raise ValueError
        return [kind.read(item) for kind, item in zip(self.of, items, strict=True)]


def literal(value: Any) -> Any:
    """The value that a text writes down, such as a number or a list; other text as it is."""
    if not isinstance(value, str) or len(value) > 100_000:
        return value
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


# Short forms, for declarations that read as a table.


def flag(default: bool, doc: str, **rest: Any) -> Flag:
    """True or False."""
    return Flag(default=default, doc=doc, **rest)


def integer(default: int, doc: str, **rest: Any) -> Integer:
    """A whole number; ``low``, ``high``, ``also`` say which."""
    return Integer(default=default, doc=doc, **rest)


def number(default: float, doc: str, **rest: Any) -> Number:
    """A number; ``low``, ``high``, ``above``, ``below``, ``also`` say which."""
    return Number(default=default, doc=doc, **rest)


def text(default: str, doc: str, **rest: Any) -> Text:
    """Any text."""
    return Text(default=default, doc=doc, **rest)


def choice(default: str, choices: Sequence[str], doc: str, **rest: Any) -> Choice:
    """One of some words."""
    return Choice(default=default, choices=tuple(choices), doc=doc, **rest)


def several(default: list | tuple, of: Setting, doc: str, **rest: Any) -> Several:
    """A list; ``length`` says how long."""
    return Several(default=default, of=of, doc=doc, **rest)
