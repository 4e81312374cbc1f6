"""A failure to open a stream is temporary: the worker retries, and the member stays up."""

from __future__ import annotations

import pytest
from aiokafka.client import AIOKafkaClient

from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.adapters.kafka.sink import KafkaSessionSink
from shared.errors import KafkaUnavailable
from shared.model.group import GroupSettings
from shared.model.names import Names


async def test_a_cluster_without_a_broker_counts_as_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the only broker answers while its controller has fenced it, aiokafka fails an assertion."""

    async def finds_no_broker(_: AIOKafkaClient) -> None:
        pass

    monkeypatch.setattr(AIOKafkaClient, "bootstrap", finds_no_broker)
    shared = SharedClients("nowhere:1", Names(), "default")
    shared.brokers._brokers = {}
    sink = KafkaSessionSink(shared, 0, GroupSettings(), 1)

    with pytest.raises(KafkaUnavailable, match=r"cannot start.*bootstrap"):
        await sink.open()

    await sink.close()
