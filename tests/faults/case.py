"""A fault: what is called, and the exit code and the words that it must end with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT

DIGITS = ("--dataset-config-file", str(ROOT / "configs/datasets/digits.yaml"))
COOP = ("--config-file", str(ROOT / "tests/tiny.yaml"))
TRAIN = ("--trainer", "CoOp_CMP", "--backbone", "TinyCLIP", "--seed", "1", *DIGITS, *COOP)
SWEEP = ("digits", "--shots", "1", "--dry-run", "--output", "{tmp}/out")

Content = bytes | str | Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """One fault, which must end in one line.

    Attributes:
        name: What is wrong.
        program: A command of ``coop-cmp``, or ``pretrain``.
        arguments: Of the program.
        words: A regular expression that the last line on stderr matches.
        files: By name below ``{tmp}``, a folder of its own: bytes, text, or what makes the path.
        code: The exit code.
    """

    name: str
    program: str
    arguments: Sequence[str]
    words: str
    files: dict[str, Content] = field(default_factory=dict)
    code: int = 2


DATA_ERROR = 65  # in a data set, which a sweep then leaves out
