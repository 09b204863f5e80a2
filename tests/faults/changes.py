"""Changes of stored files: any bytes, any end, any value of what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

GONE = object()
"""In the place of a value: it is removed."""
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "..", "/", "a\0b", "\ud800", "x" * 300, "{}", "{", "~", 10**400])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


TRIED: list[str] = []
"""The test that made each change, for the summary."""
ALIKE = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
"""The same examples in every run."""


def tries(number: int, changes: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check so many changes; a failure is shown as it was found."""

    @settings(ALIKE, max_examples=number, phases=[Phase.generate])
    @given(changes)
    def one(change: Any) -> None:
        TRIED.append(check.__module__)
        check(change)

    one()


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all values of a tree."""
    lists = enumerate(tree) if isinstance(tree, list) else ()
    inner = tree.items() if isinstance(tree, dict) else lists
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value there, or without it."""
    if not path:
        return None if value is GONE else value
    copy = tree.copy()
    if len(path) == 1 and value is GONE:
        del copy[path[0]]
    else:
        copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


@st.composite
def other_trees(draw: st.DrawFn, tree: Any) -> Any:
    """The tree with a value replaced or removed."""
    return replaced(tree, draw(st.sampled_from(places(tree))), draw(st.just(GONE) | VALUES))


@st.composite
def other_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with bytes replaced, inserted, removed or cut off."""
    place = draw(st.integers(0, len(content) - 1))
    gone = draw(st.integers(0, 9) | st.just(len(content)))
    return content[:place] + draw(st.binary(max_size=9)) + content[place + gone :]
