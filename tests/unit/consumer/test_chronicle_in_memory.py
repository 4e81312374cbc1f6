"""The in-memory chronicle keeps the promises of the one on Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared.model.events import Event
from tests.chronicle_contract import ChronicleContract, ChronicleWorld
from tests.fakes.chronicle import InMemoryChronicle


class InMemoryWorld(ChronicleWorld):
    """The twin, which needs no waiting for."""

    def __init__(self) -> None:
        self.chronicle: InMemoryChronicle = InMemoryChronicle(capacity=3)
        self.chronicle.is_away = True

    async def come_back(self) -> None:
        self.chronicle.is_away = False
        self.chronicle.flush()

    async def written(self, count: int) -> Sequence[Event]:
        assert len(self.chronicle.events) == count
        return self.chronicle.events


class TestInMemoryChronicle(ChronicleContract):
    """The contract on the twin."""

    @pytest.fixture
    def world(self) -> InMemoryWorld:
        return InMemoryWorld()
