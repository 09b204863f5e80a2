"""What a setting may be: its kind, its range, its default and one line on what it means."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from coop_cmp.errors import closest

_BRACE = "write {{ or }} for a literal brace"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One key of the configuration.

    Attributes:
        kind: ``bool``, ``int``, ``float``, ``str`` or ``list``; the default of a list may be a
            tuple, and then its values are tuples.
        default: The value where nothing else is said.
        doc: What it means, in a line.
        free: Whether it cannot change a number of a run's results.
        low: The smallest number.
        high: The largest number.
        above: Every number is larger than this.
        below: Every number is smaller than this.
        also: Numbers outside that range with a meaning of their own.
        choices: The words that it takes; empty: any text.
        is_template: Whether it is a prompt with one place for the class name, or empty.
        each: What every item of a list is; its default means nothing.
        row: For a list with an item of its own kind at each place: what these are.
        length: The number of items, if only one is accepted.
    """

    kind: type
    default: Any
    doc: str = ""
    free: bool = False
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    also: tuple[float, ...] = ()
    choices: tuple[str, ...] = ()
    is_template: bool = False
    each: Setting | None = None
    row: tuple[Setting, ...] = ()
    length: int | None = None

    @property
    def expected(self) -> str:
        """The values it takes, in words."""
        if self.kind is bool:
            return "True or False"
        if self.kind in (int, float):
            return self._range()
        if self.row:
            return f"[{', '.join(item.expected for item in self.row)}]"
        if self.each is not None:
            count = "a list" if self.length is None else f"a list of {self.length}"
            return f"{count}, each {self.each.expected}"
        if self.choices:
            words = [choice or "empty" for choice in self.choices]
            return " or ".join([", ".join(words[:-1]), words[-1]])
        template = 'a prompt with one {} for the class name, such as "a photo of a {}."'
        return template if self.is_template else "text"

    def _range(self) -> str:
        least = "" if self.low is None else f">= {self.low}"
        least = least if self.above is None else f"above {self.above}"
        most = "" if self.high is None else f"at most {self.high}"
        most = most if self.below is None else f"below {self.below}"
        words = " and ".join(filter(None, (least, most)))
        if self.low is not None and self.high is not None:
            words = f"from {self.low} to {self.high}"
        noun = "a whole number" if self.kind is int else "a number"
        return " or ".join([f"{noun} {words}".strip(), *map(str, self.also)])

    def read(self, value: Any) -> Any:
        """Return ``value``, which a command line gives as text, as this kind.

        Raises:
            ValueError: It is not one; the message is a hint, or empty.
        """
        if self.kind is str:
            return self._text(value)
        if self.kind is bool:
            words = {"true": True, "false": False}
            value = words.get(value.lower()) if isinstance(value, str) else value
            if not isinstance(value, bool):
                raise ValueError
            return value
        return self._list(literal(value)) if self.kind is list else self._number(literal(value))

    def _number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        try:
            number = self.kind(value) + 0  # -0.0 is 0
        except (OverflowError, ValueError):  # too large, infinite or NaN
            raise ValueError from None
        inside = (
            (number == value if self.kind is int else math.isfinite(number))
            and (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )
        if not inside and number not in self.also:
            raise ValueError
        return number

    def _text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError
        known = literal(value)
        value = known if isinstance(known, str) else value
        if not value.isprintable():
            raise ValueError("it holds characters that cannot be printed")
        if self.choices and value not in self.choices:
            raise ValueError(closest(value, self.choices).removeprefix("; "))
        if self.is_template and value:
            try:
                places = [place[1:] for place in Formatter().parse(value) if place[1] is not None]
            except ValueError:
                raise ValueError(_BRACE) from None
            if len(places) != 1:
                raise ValueError
            if places[0] not in (("", "", None), ("0", "", None)):
                raise ValueError(_BRACE)
        return value

    def _list(self, items: Any) -> list[Any] | tuple[Any, ...]:
        length = len(self.row) or self.length
        if isinstance(items, str | int | float) and length is None and items != "":
            items = [items]
        if not isinstance(items, list | tuple) or length not in (None, len(items)):
            raise ValueError
        kinds: Any = self.row or [self.each] * len(items)
        found = (kind.read(item) for kind, item in zip(kinds, items, strict=True))
        return type(self.default)(found)


def literal(value: Any) -> Any:
    """Return the value that a text writes down, such as a number or a list; else the text."""
    if not isinstance(value, str) or len(value) > 100_000:
        return value
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


# Short forms, for declarations that read as a table.


def flag(default: bool, doc: str, free: bool = False) -> Setting:
    """True or False."""
    return Setting(kind=bool, default=default, doc=doc, free=free)


def integer(default: int, doc: str, **rest: Any) -> Setting:
    """A whole number, such as 4 or 4.0; ``low``, ``high``, ``also`` say which."""
    return Setting(kind=int, default=default, doc=doc, **rest)


def number(default: float, doc: str, **rest: Any) -> Setting:
    """A finite number; ``low``, ``high``, ``above``, ``below``, ``also`` say which."""
    return Setting(kind=float, default=default, doc=doc, **rest)


def text(default: str, doc: str, **rest: Any) -> Setting:
    """Text that can be printed; with ``is_template`` a prompt with one place for the name."""
    return Setting(kind=str, default=default, doc=doc, **rest)


def choice(default: str, choices: Sequence[str], doc: str) -> Setting:
    """One of some words."""
    return Setting(kind=str, default=default, doc=doc, choices=tuple(choices))


def several(default: list | tuple, each: Setting, doc: str, **rest: Any) -> Setting:
    """A list whose items are of one kind; ``length`` says how long."""
    return Setting(kind=list, default=default, doc=doc, each=each, **rest)


def row(*items: Setting) -> Setting:
    """A list with an item of its own kind at each place."""
    return Setting(kind=list, default=[item.default for item in items], row=items)
