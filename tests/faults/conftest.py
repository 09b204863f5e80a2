"""How long the trials take: ``python -m pytest tests/faults --kills 100``."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills", type=int, default=3, help="runs to kill, and a tenth of the settings to try"
    )
