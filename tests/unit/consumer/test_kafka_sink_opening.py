"""A stream that cannot be opened just now is opened later; the member goes on."""

from __future__ import annotations

import pytest
from aiokafka.client import AIOKafkaClient

from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.adapters.kafka.sink import KafkaSessionSink
from shared.errors import KafkaUnavailable
from shared.model.group import GroupSettings
from shared.model.names import Names


async def test_a_cluster_without_a_broker_is_one_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only broker answers, but its controller has shut it out: aiokafka fails an assertion then."""

    async def finds_nobody(_: AIOKafkaClient) -> None:
        pass

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", finds_nobody)
    shared = SharedClients("nowhere:1", Names(), "default")
    shared.brokers._brokers = {}
    sink = KafkaSessionSink(shared, 0, GroupSettings(), 1)

    with pytest.raises(KafkaUnavailable, match=r"cannot start.*bootstrap"):
        await sink.open()

    await sink.close()
