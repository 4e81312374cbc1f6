"""The in-memory event sink keeps the contract of the one on Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared.model.events import Event
from tests.event_sink_contract import EventSinkContract, EventSinkWorld
from tests.fakes.event_sink import InMemoryEventSink


class InMemoryWorld(EventSinkWorld):
    """The twin, which writes at once."""

    def __init__(self) -> None:
        self.event_sink: InMemoryEventSink = InMemoryEventSink(capacity=3)
        self.event_sink.is_away = True

    async def come_back(self) -> None:
        self.event_sink.is_away = False
        self.event_sink.flush()

    async def written(self, count: int) -> Sequence[Event]:
        assert len(self.event_sink.events) == count
        return self.event_sink.events


class TestInMemoryChronicle(EventSinkContract):
    """The contract on the twin."""

    @pytest.fixture
    def world(self) -> InMemoryWorld:
        return InMemoryWorld()
