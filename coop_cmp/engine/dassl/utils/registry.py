"""Names for classes and functions, so that a config file can ask for them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any


class Registry:
    """A table from ``obj.__name__`` to ``obj``.

    Example:
        >>> MODELS = Registry("MODEL")
        >>> @MODELS.register()
        ... class Net: ...
        >>> MODELS.get("Net") is Net
        True
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._obj_map: dict[str, Any] = {}

    def register(self, obj: Any = None, force: bool = False) -> Any:
        """Add ``obj``, or return a decorator that does; both hand the object back.

        Raises:
            KeyError: the name is taken and ``force`` is false.
        """
        if obj is None:
            return lambda obj: self.register(obj, force=force)
        name = obj.__name__
        if name in self._obj_map and not force:
            raise KeyError(
                f'An object named "{name}" was already registered in "{self._name}" registry'
            )
        self._obj_map[name] = obj
        return obj

    def get(self, name: str) -> Any:
        """Return the object registered as ``name``; KeyError if there is none."""
        if name not in self._obj_map:
            raise KeyError(f'Object name "{name}" does not exist in "{self._name}" registry')
        return self._obj_map[name]

    def choose(self, name: str, note: str = "") -> Any:
        """Return what a setting names, after printing a note; ValueError with the closest name."""
        check_availability(name, self.registered_names())
        if note:
            print(f"{note}: {name}")
        return self._obj_map[name]

    def registered_names(self) -> list[str]:
        """All names, in the order of their registration."""
        return list(self._obj_map)


def get_most_similar_str_to_a_from_b(a: str, b: Sequence[str]) -> str | None:
    """Return the element of ``b`` that looks most like ``a``, None when nothing is alike."""
    ratios = {name: difflib.SequenceMatcher(None, a, name).ratio() for name in b}
    best = max(ratios, key=lambda name: ratios[name], default=None)
    return best if best is not None and ratios[best] > 0 else None


def check_availability(requested: str, available: Sequence[str]) -> None:
    """Raise ValueError, with the closest match, if ``requested`` is not in ``available``."""
    if requested not in available:
        closest = get_most_similar_str_to_a_from_b(requested, available)
        raise ValueError(
            f"The requested one is expected to belong to {list(available)}, "
            f"but got [{requested}] (do you mean [{closest}]?)"
        )
