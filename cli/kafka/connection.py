"""Opens the connections of a command to Kafka; all commands that talk to Kafka themselves use it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from shared.errors import KafkaUnavailable
from shared.kafka.cluster import Cluster


@contextlib.asynccontextmanager
async def connected(kafka: str) -> AsyncIterator[Cluster]:
    """The cluster, open during the block. Raises KafkaUnavailable, which names the addresses."""
    async with Cluster(kafka) as cluster:
        try:
            await cluster.refresh()
        except KafkaUnavailable as error:
            raise KafkaUnavailable(f"Kafka at {kafka} does not answer", cause=error.detail) from error
        yield cluster
