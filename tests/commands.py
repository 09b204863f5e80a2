"""The commands of ``coop-cmp`` as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coop_cmp import cli


def command(name: str, handled: bool = False) -> Callable[[Sequence[str]], int]:
    """A command as a function of its arguments that returns the exit code.

    Args:
        handled: Whether its errors become exit codes, as for a user; else they are raised.
    """
    call = cli.main if handled else cli.dispatch
    return lambda words: call([name, *words])
