"""Reads the topic of rejects up to its end at opening time, and keeps how far each reason was replayed.

`baton rejected` lists rejects from it and sends them again (cli/rejects/replay.py). Each reason has a Kafka
consumer group whose committed offset says how far it was replayed. It survives the process, and Kafka's own
tools can show and move it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.kafka.bounds import Bounds, bounds_of, starts_since
from cli.kafka.connection import connected
from shared.errors import KafkaUnavailable
from shared.kafka.admin.catalog import count_partitions
from shared.kafka.admin.committed import Committed, KafkaGroup
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.kafka.read.ranges import read_range
from shared.kafka.record import Record
from shared.kafka.send.outcome import Delivery
from shared.kafka.send.sender import Sender
from shared.model.names import Names
from shared.model.rejects import Reject, parse_reject

PAGE_RECORDS = 500
DISMISSED_AT_ONCE = 1000
"""Rejects that one record dismisses: about 40 KB."""
_DISMISSES = "dismisses"
DISMISS_S = 20.0
"""Within this time they are dismissed, or it fails."""
DISMISS_BATCH_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReject:
    """A reject with its partition and offset; `time_ms` is the broker's append time.

    `dismisses`: the rejects that an operator dismissed with this record, which is then no reject itself.
    """

    partition: int
    offset: int
    time_ms: int
    reject: Reject
    dismisses: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How far a reason was replayed: up to `offset`.

    `appended_ms` is the append time of the record before, by which its log is recognized; None if an earlier
    version stored the place.
    """

    offset: int
    appended_ms: int | None = None


class RejectedLog:
    """The topic as it was when opened.

    `bounds` are the half-open offsets (first, end) of each partition, `opened_at` the places of the reason.
    These were read first, so one beyond the end belongs to another log.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: KafkaGroup | None,
        topic: str,
        bounds: Bounds,
        opened_at: Mapping[int, Place],
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._forgotten: set[int] = set()
        self.bounds = bounds
        self.opened_at = opened_at

    def __repr__(self) -> str:
        return f"<RejectedLog of {self._topic}: {dict(self.bounds)}>"

    async def starts(self, since_ms: int) -> dict[int, int]:
        """The first offset of each partition that is not older than `since_ms`; its end if all are older.

        Raises KafkaUnavailable.
        """
        return await starts_since(self._cluster, self._topic, self.bounds, since_ms)

    async def read(self, partition: int, start: int) -> AsyncIterator[Sequence[StoredReject]]:
        """The rejects of a partition from `start` to its end, in pages. Raises KafkaUnavailable."""
        first, end = self.bounds[partition]
        place, page = (self._topic, partition), list[StoredReject]()
        # only to this end: what was appended meanwhile may be our own rejects, and would be replayed for ever
        async for record in read_range(self._cluster, place, max(start, first), end - 1, is_committed=False):
            page.append(_stored(partition, record))
            if len(page) == PAGE_RECORDS:
                yield page
                page = []
        if page:
            yield page

    def forget(self, partition: int) -> None:
        """Makes the next commit replace the place, however far that was: it belongs to another log."""
        self._forgotten.add(partition)

    async def commit(self, partition: int, place: Place) -> None:
        """Records that everything below the place was replayed; a higher one of another replay stays.

        Raises KafkaUnavailable; then it is unknown whether the place was committed.
        """
        assert self._group is not None
        where = self._topic, partition
        # two replays at once must not set each other back
        if partition not in self._forgotten:
            committed = await self._group.committed([where])
            if committed[where].offset >= place.offset:
                return
        await self._group.commit(
            where, place.offset, "" if place.appended_ms is None else str(place.appended_ms)
        )
        self._forgotten.discard(partition)


async def dismiss_rejects(kafka: Kafka, names: Names, identities: Iterable[str]) -> None:
    """Appends records to the topic that dismiss these rejects. Raises KafkaUnavailable.

    They are kept for as long as the rejects, because they are newer. No client can write such a record: it is
    marked by a header.
    """
    found = list(identities)
    texts = ["\n".join(found[at : at + DISMISSED_AT_ONCE]) for at in range(0, len(found), DISMISSED_AT_ONCE)]
    records: list[Record] = [(None, text.encode(), [(_DISMISSES, b"1")]) for text in texts]
    async with connected(kafka) as cluster:
        sender = Sender(cluster, deliver_s=DISMISS_S, max_batch_bytes=DISMISS_BATCH_BYTES)
        delivery = Delivery()
        try:
            delivery.expect(sender.add((names.rejected, 0), records, range(len(records)), delivery))
            await delivery.done
        finally:
            await sender.close()
    if delivery.loss is not None:
        raise KafkaUnavailable(
            f"rejects cannot be dismissed: {delivery.loss.reason}", cause=delivery.loss.cause
        )


def _stored(partition: int, record: Any) -> StoredReject:
    return StoredReject(
        partition=partition,
        offset=record.offset,
        time_ms=record.timestamp,
        reject=parse_reject(record.value, record.headers),
        dismisses=_dismissals(record),
    )


def _dismissals(record: Any) -> frozenset[str]:
    if _DISMISSES not in dict(record.headers):
        return frozenset()
    return frozenset((record.value or b"").decode(errors="replace").split())


@contextlib.asynccontextmanager
async def open_rejected(
    kafka: Kafka, names: Names, *, reason: str | None = None, is_from_start: bool = False
) -> AsyncIterator[RejectedLog]:
    """The topic of rejects as it is now; with a reason, also how far that reason was replayed.

    With `is_from_start` it forgets that, and a replay sends everything again.

    Raises KafkaUnavailable, also when the topic does not exist yet.
    """
    topic = names.rejected
    async with connected(kafka) as cluster:
        group = None if reason is None else KafkaGroup(cluster, names.replay(reason))
        places = {} if group is None or is_from_start else await _places(cluster, topic, group)
        yield RejectedLog(cluster, group, topic, await bounds_of(cluster, topic), places)


async def _places(cluster: Cluster, topic: str, group: KafkaGroup) -> dict[int, Place]:
    partitions = [(topic, number) for number in range(await count_partitions(cluster, topic))]
    committed = await group.committed(partitions)
    return {number: _place(found) for (_, number), found in committed.items() if found.offset >= 0}


def _place(committed: Committed) -> Place:
    # Kafka's tools move offsets without metadata
    appended_ms = int(committed.metadata) if committed.metadata.isdigit() else None
    return Place(offset=committed.offset, appended_ms=appended_ms)
