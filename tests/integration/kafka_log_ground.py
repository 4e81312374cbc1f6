"""What the tests of the Kafka log read on a real broker."""

from __future__ import annotations

from shared.model.names import Names
from shared.model.sessions import Session, parse_session
from tests.topics import records_of

RETENTION_MS = 604_800_000


async def delivered(kafka: str, names: Names, partition: int, count: int) -> list[Session]:
    """The first `count` sessions in a partition of the sessions topic."""
    records = await records_of(kafka, names.sessions("default"), partition, at_least=count)
    return [parse_session(record.value) for record in records[:count]]
