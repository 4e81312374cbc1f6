"""Checks names of groups and streams where a command talks to Kafka itself, and no control answers.

The first member of a group creates the group's topics, so these say which groups there are. The sentences
are those of control. Used by `baton sessions` and `baton kafka`.
"""

from __future__ import annotations

from cli.kafka.connection import connected
from shared.errors import NotFound
from shared.kafka.admin.catalog import count_partitions, list_all
from shared.kafka.connect.access import Kafka
from shared.model.names import Names


async def check_names(kafka: Kafka, names: Names, group: str, stream: int | None = None) -> None:
    """Returns if there is such a group, with such a stream. Raises NotFound, KafkaUnavailable."""
    async with connected(kafka) as cluster:
        topics, checkpoints = await list_all(cluster), names.checkpoints(group)
        # an operator who repairs a group may have lost one of the two
        if checkpoints not in topics and names.sessions(group) not in topics:
            where = f" in the namespace {names.namespace!r}" if names.namespace else ""
            raise NotFound(f"there is no group {group!r}{where}")
        if stream is not None and checkpoints in topics:
            count = await count_partitions(cluster, checkpoints)
            if stream >= count:
                raise NotFound(f"there is no stream {stream}; there are 0 … {count - 1}")
