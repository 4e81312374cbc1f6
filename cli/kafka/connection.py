"""Opens the connections of a command to Kafka; all commands that talk to Kafka themselves use it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from shared.errors import KafkaDenied, KafkaUnavailable
from shared.kafka.connect.access import Kafka, access_of
from shared.kafka.connect.cluster import Cluster


@contextlib.asynccontextmanager
async def connected(kafka: Kafka) -> AsyncIterator[Cluster]:
    """The cluster, open during the block. Raises KafkaUnavailable, with the addresses, and KafkaDenied."""
    async with Cluster(kafka) as cluster:
        try:
            await cluster.refresh()
        except KafkaDenied:
            raise
        except KafkaUnavailable as error:
            raise KafkaUnavailable(
                f"Kafka at {access_of(kafka).bootstrap} does not answer", cause=error.detail
            ) from error
        yield cluster
