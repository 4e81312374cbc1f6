"""A failure to open a stream is temporary: the worker retries, and the member stays up."""

from __future__ import annotations

import pytest

from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.adapters.kafka.sink import KafkaSessionSink
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.model.group import GroupSettings
from shared.model.names import Names
from tests.fakes.kafka import FakeKafka
from tests.fakes.virtual_time import virtual_time


@virtual_time
async def test_a_cluster_without_a_broker_counts_as_unavailable() -> None:
    """A broker may answer while its controller has fenced it: then the metadata names none."""
    kafka = FakeKafka()
    shared = SharedClients("fake:1", Names(), "default")
    shared.cluster = Cluster("fake:1", kafka.connect)
    sink = KafkaSessionSink(shared, 0, GroupSettings(), 1)
    kafka.unregistered = True

    with pytest.raises(KafkaUnavailable, match="no broker"):
        await sink.open()

    await shared.close()
