"""The in-memory log keeps the promises of `services/consumer/ports.py`."""

from __future__ import annotations

import pytest

from tests.fakes.log import InMemoryLog, InMemoryStreamLog
from tests.log_contract import SETTINGS, LogContract
from tests.topics import Append


class TestInMemoryLog(LogContract):
    """The contract on the twin."""

    @pytest.fixture
    def stream_log(self) -> InMemoryStreamLog:
        return InMemoryStreamLog(InMemoryLog(SETTINGS, now_ms=lambda: 1_000))

    @pytest.fixture
    def append(self, stream_log: InMemoryStreamLog) -> Append:
        async def append(stream: int, key: bytes | None, value: bytes) -> int:
            return stream_log.broker.append(stream, key, value)

        return append
