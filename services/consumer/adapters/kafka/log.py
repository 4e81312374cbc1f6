"""The log as a member sees it (port `StreamLog`): creates readers and sinks of streams over shared
clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial

from services.consumer.adapters.kafka.clients import SharedClients
from services.consumer.adapters.kafka.sink import KafkaSessionSink
from services.consumer.adapters.kafka.source import KafkaFragmentReader
from services.consumer.ports import FragmentReader, SessionSink
from shared.kafka.admin.catalog import count_partitions, is_missing
from shared.kafka.connect.access import Kafka
from shared.kafka.read.offsets import EARLIEST, LATEST, list_known_offsets, list_offsets
from shared.kafka.read.ranges import read_range
from shared.kafka.read.session_search import ClosedAt, append_time, find_since, first_closed
from shared.model.group import GroupSettings
from shared.model.names import Names
from shared.model.start import Cut


class KafkaStreamLog:
    """The log of one group; `session_partitions`: how many partitions its sessions topic has."""

    def __init__(
        self, kafka: Kafka, names: Names, group: str, settings: GroupSettings, session_partitions: int
    ) -> None:
        self._names = names
        self._settings = settings
        self._session_partitions = session_partitions
        self._shared = SharedClients(kafka, names, group)
        self.cluster = self._shared.cluster
        """For all else that the member sends to Kafka."""

    def __repr__(self) -> str:
        return f"<KafkaStreamLog over {self._shared!r}>"

    def reader(self, stream: int) -> FragmentReader:
        return KafkaFragmentReader(self._shared, stream)

    def sink(self, stream: int) -> SessionSink:
        return KafkaSessionSink(self._shared, stream, self._settings, self._session_partitions)

    async def delivered(self, cut: Cut, stream: int, start: int) -> AsyncIterator[bytes]:
        cluster, topic = self._shared.cluster, self._names.sessions(cut.group)
        if await is_missing(cluster, topic):
            return  # no member of that group has ever run
        partition = topic, stream % await count_partitions(cluster, topic)
        first = (await list_offsets(cluster, [partition], EARLIEST))[partition]
        # not only what is decided: the sessions of a commit may be undecided when its head is not any more
        end = (await list_offsets(cluster, [partition], LATEST))[partition]
        since = await self._append_time_before(stream, start)
        if since is not None:  # what reaches the start closed after that
            probe = partial(first_closed, cluster, partition, stream)
            first = await find_since(probe, first, end, ClosedAt(cut.log, since))
        async for record in read_range(cluster, partition, first, end - 1, is_committed=True):
            yield record.value or b""

    async def _append_time_before(self, stream: int, offset: int) -> int | None:
        """The append time (ms) of the record before this offset, or of the first one left after it; None if
        the log ends before it.
        """
        cluster, log = self._shared.cluster, (self._names.fragments(stream), 0)
        end = (await list_offsets(cluster, [log], LATEST))[log]
        return await append_time(cluster, log, max(0, offset - 1), end)

    async def ends(self, streams: Collection[int]) -> Mapping[int, int]:
        logs = {stream: (self._names.fragments(stream), 0) for stream in streams}
        ends = await list_known_offsets(self._shared.cluster, logs.values(), LATEST)
        return {stream: ends[log] for stream, log in logs.items() if log in ends}

    async def close(self) -> None:
        await self._shared.close()
