"""`--rewrite`: scenario files are written anew with what the code prints."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known only where pytest is started on `tests/scenarios`; elsewhere nothing is rewritten."""
    parser.addoption("--rewrite", action="store_true", help="write what scenarios print into their files")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite the expectations."""
    return bool(request.config.getoption("--rewrite", default=False))
