"""The log of one queue on Kafka: one partition, read as it grows."""

from __future__ import annotations

from collections.abc import Sequence

from services.queue.core.replica import LogMoved, LogRecord
from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.fetcher import Fetcher
from shared.kafka.read.offsets import EARLIEST, LATEST, delete_records, list_offsets
from shared.kafka.read.reading import Reading
from shared.kafka.send.sender import Sender

TAKEN_AT_ONCE = 200
"""Other queues' logs are read in between."""


class KafkaCommandLog:
    """See `CommandLog`. `close` it before the fetcher."""

    def __init__(self, cluster: Cluster, fetcher: Fetcher, sender: Sender, topic: str) -> None:
        self._cluster, self._fetcher, self._sender = cluster, fetcher, sender
        self._place = topic, 0
        self._reading: Reading | None = None
        self._last: LogRecord | None = None
        self._topic_id: bytes | None = None

    def __repr__(self) -> str:
        return f"<KafkaCommandLog {self._place[0]}>"

    async def bounds(self) -> tuple[int, int]:
        """See `CommandLog`."""
        starts = await list_offsets(self._cluster, [self._place], EARLIEST)
        ends = await list_offsets(self._cluster, [self._place], LATEST)
        self._topic_id = self._present_id()
        return starts[self._place], ends[self._place]

    def seek(self, offset: int) -> None:
        """See `CommandLog`."""
        self._last = None
        if self._reading is None:
            self._reading = self._fetcher.read(*self._place, offset)
        else:
            self._reading.seek(offset)

    async def read(self, timeout_s: float) -> Sequence[LogRecord]:
        """See `CommandLog`. Raises LogMoved if the log is not the one of before any more."""
        assert self._reading is not None
        found = await self._reading.take(timeout_s, TAKEN_AT_ONCE)
        if self._present_id() != self._topic_id:  # one that is shorter has no record to be compared
            raise LogMoved("it is another topic of the same name")
        records = [LogRecord(one.offset, one.timestamp, one.value or b"") for one in found]
        if records and self._last is not None and records[0].offset == self._last.offset:
            # after another broker took over, the last record comes once more, to be compared
            if records[0] != self._last:
                raise LogMoved("the end of the log was lost")
            del records[0]
        if records:
            self._last = records[-1]
        return records

    def _present_id(self) -> bytes | None:
        """The id of the topic as the metadata have it now; the one of before while that is unknown."""
        return self._cluster.topic_id(self._place[0]) or self._topic_id

    async def append(self, value: bytes) -> None:
        """See `CommandLog`."""
        await self._sender.send(self._place, [(None, value, [])])

    async def check(self) -> None:
        """See `CommandLog`."""
        await check_topic(self._cluster, self._place[0], self._topic_id)

    async def trim(self, below: int) -> None:
        """See `CommandLog`."""
        await self.check()
        await delete_records(self._cluster, {self._place: below})

    def close(self) -> None:
        """Ends the reading."""
        if self._reading is not None:
            self._fetcher.forget(self._reading)


async def check_topic(cluster: Cluster, topic: str, topic_id: bytes | None) -> None:
    """Raises LogMoved if Kafka has another topic of that name by now; KafkaUnavailable if it names none.

    To be called right before anything is deleted: Kafka deletes records by the name of their topic.
    """
    await cluster.refresh([topic])
    present = cluster.topic_id(topic)
    if present is None:
        raise KafkaUnavailable(f"Kafka does not know the topic {topic} at present")
    if present != topic_id:
        raise LogMoved(f"{topic} is another topic of the same name")
