"""The in-memory log keeps the promises of `services/consumer/ports.py`."""

from __future__ import annotations

import itertools

import pytest

from tests.fakes.log import InMemoryLog, InMemoryStreamLog
from tests.fakes.operator import InMemoryOperator
from tests.log_contract import SETTINGS, LogContract
from tests.lost_log_contract import LostLogContract, Operator
from tests.topics import Append


class TestInMemoryLog(LogContract, LostLogContract):
    """The contracts on the twin."""

    @pytest.fixture
    def stream_log(self) -> InMemoryStreamLog:
        clock = itertools.count(1_000)
        broker = InMemoryLog(SETTINGS, now_ms=lambda: next(clock))
        broker.others["default"] = broker
        return InMemoryStreamLog(broker)

    @pytest.fixture
    def append(self, stream_log: InMemoryStreamLog) -> Append:
        async def append(stream: int, key: bytes | None, value: bytes) -> int:
            return stream_log.broker.append(stream, key, value)

        return append

    @pytest.fixture
    def operator(self, stream_log: InMemoryStreamLog) -> Operator:
        return InMemoryOperator(stream_log.broker)
