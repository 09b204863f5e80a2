"""How long the trials take: ``python -m pytest tests/faults --kills 100``."""

from __future__ import annotations

import pytest

from tests.faults.changes import TRIED


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills",
        type=int,
        default=3,
        help="runs to kill, and a tenth of the settings to try, and a thousandth of the changes",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TRIED:
        terminalreporter.write_line(f"{len(TRIED):,} changes of stored files were tried")


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    """How often to try what takes long."""
    return request.config.getoption("--kills", 3)
