"""Faults that the loops of `shared/kafka` outlive would hide behind another try: here each fails its test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class _Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(f"{record.getMessage()}: {record.exc_info}")


@pytest.fixture(autouse=True)
def faults_of_ours() -> Iterator[list[str]]:
    """What was logged as one; a test that plants faults takes them out."""
    faults, logger = _Faults(), logging.getLogger("shared.kafka")
    logger.addHandler(faults)
    yield faults.found
    logger.removeHandler(faults)
    assert faults.found == []
