"""Sends records without transactions: idempotently, in the order of each partition, in bounded time.

A batch ages from the arrival of its first record, whether it waits, flies or is tried again. At its deadline
it is reported as lost; what has not flown by then is never sent. Whatever happens to a batch concerns its
partition alone: if its outcome is unknown, that partition goes on under another producer id.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import Cluster
from shared.kafka.connect.refusals import reason_of
from shared.kafka.record import Partition, Record
from shared.kafka.send.departures import NO_ANSWER, Departures
from shared.kafka.send.outcome import Delivery, Loss, LossKind, Waiter
from shared.kafka.send.outgoing import Batch, Outgoing, Trip
from shared.kafka.send.pace import SLOW_ROUND_S
from shared.kafka.send.produce_errors import DUPLICATE, NEEDS_NEW_PRODUCER, NOT_STORED, TRY_AGAIN
from shared.kafka.send.search import Search

ENCODED_AT_ONCE: Final = 200
"""About 0.5 ms."""
MISSING_S: Final = 2.0
"""A broker may take so long to list a topic that it has just created."""
SUSPECT_S: Final = 1.0
"""After this long without an answer, the sender looks whether another broker leads by now."""


class Sender:
    """Sends over the cluster's connections; made inside the loop. `close` it at the end, before the cluster.

    `deliver_s`: how long after its arrival a record is reported as lost at the latest. `max_batch_bytes`: a
    record that is larger has a batch of its own. `at_once`: how many requests may be on their way to a
    broker. `on_stored` and `on_lost` hear of each batch, after those who wait for it.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        deliver_s: float,
        max_batch_bytes: int,
        compression: str = "none",
        at_once: int = 1,
        on_stored: Callable[[Partition], None] = lambda place: None,
        on_lost: Callable[[Partition, Loss], None] = lambda place, loss: None,
    ) -> None:
        self._deliver_s = deliver_s
        self._max_batch_bytes = max_batch_bytes
        self._codec = compression
        self._on_stored, self._on_lost = on_stored, on_lost
        self._cluster = cluster
        # kept, because looking for it costs a system call each time (getpid)
        self._loop = asyncio.get_running_loop()
        # a connection may be mute although its broker is not, so there is time for another
        timeout_s = max(1.0, deliver_s / 2)
        self._departures = Departures(cluster, self._landed, timeout_s=timeout_s, at_once=at_once)
        self._search = Search(cluster, self._found)
        self._partitions: dict[Partition, Outgoing] = {}
        self._busy: dict[Outgoing, None] = {}
        self._sweep_s = min(SLOW_ROUND_S, deliver_s / 10)
        self._sweeping: asyncio.TimerHandle | None = None
        self._look_s = 0.0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Sender to {len(self._partitions)} partitions, {len(self._busy)} busy, {self._departures!r}>"

    def add(
        self,
        place: Partition,
        records: Iterable[Record],
        indexes: Sequence[Any],
        waiter: Waiter,
        now_ms: int | None = None,
    ) -> int:
        """Appends records, one for each of `indexes` (at least one); how many outcomes the waiter will get.

        `now_ms` is their timestamp. Nothing is reported before it returns. Raises KafkaUnavailable if closed.
        """
        if self._is_closed:
            raise KafkaUnavailable("the sender is closed")
        outgoing = self._partitions.get(place)
        if outgoing is None:
            outgoing = self._partitions[place] = Outgoing(place, self._max_batch_bytes, self._codec)
        if outgoing not in self._busy:
            self._begin(outgoing)
        if now_ms is None:
            now_ms = time.time_ns() // 1_000_000
        shares = outgoing.append(records, indexes, waiter, now_ms, self._loop.time())
        if not self._departures.arrive(outgoing):
            self._proceed(outgoing)
        return shares

    async def send(self, place: Partition, records: Iterable[Record]) -> None:
        """Returns once all records are stored, in order; other tasks run while many are encoded.

        Raises KafkaUnavailable: then some may be stored. A cancelled call does not withdraw its records.
        """
        deliveries, left = list[Delivery](), iter(records)
        while some := list(itertools.islice(left, ENCODED_AT_ONCE)):
            delivery = Delivery()
            delivery.expect(self.add(place, some, range(len(some)), delivery))
            deliveries.append(delivery)
            await asyncio.sleep(0)
        for delivery in deliveries:
            await delivery.done
            if delivery.loss is not None:
                raise KafkaUnavailable(delivery.loss.reason, cause=delivery.loss.cause)

    async def close(self) -> None:
        """Reports all that is not stored yet as lost; never raises. The cluster stays open."""
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._departures.close()
        await self._search.close()
        for outgoing in self._busy:
            for batch in [outgoing.current, *outgoing.queue]:
                if batch is not None:
                    self._lose(outgoing, batch, "closed", "the sender was closed")
        self._busy.clear()

    def _begin(self, outgoing: Outgoing) -> None:
        """Looks after a partition that had nothing to send."""
        self._busy[outgoing] = None
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(self._sweep_s, self._sweep)

    def _proceed(self, outgoing: Outgoing) -> None:
        """Makes the partition's next batch ready to leave, or looks for what it needs first."""
        if not outgoing.has_next or self._is_closed:
            return
        if self._departures.is_ready(outgoing) or self._search.is_sought(outgoing):
            return
        node = self._search.equip(outgoing)
        if node is None:
            self._search.seek(outgoing)
        else:
            self._departures.make_ready(outgoing, node)

    def _landed(self, outgoing: Outgoing, trip: Trip, code: int, offset: int, why: str) -> None:
        """A trip has ended: with the broker's error code (0: stored), or without an answer."""
        trouble = why if code == NO_ANSWER else reason_of(code) if code else ""
        batch = outgoing.arrive(trip, trouble, is_doubtful=code not in NOT_STORED)
        if batch is None:  # decided about meanwhile
            return
        self._search.forget(outgoing)
        if code in (0, DUPLICATE):
            self._stored(outgoing, batch, offset)
        elif code == NO_ANSWER or code in TRY_AGAIN:
            self._search.seek(outgoing, outgoing.backoff.next_s())
        elif code in NEEDS_NEW_PRODUCER and not batch.is_doubtful:
            outgoing.renounce()
            self._search.seek(outgoing, outgoing.backoff.next_s())
        else:
            self._lose(outgoing, batch, "rejected", f"Kafka rejects the batch: {trouble}", code)

    def _stored(self, outgoing: Outgoing, batch: Batch, offset: int) -> None:
        outgoing.complete(batch, is_stored=True)
        outgoing.backoff.reset()
        self._proceed(outgoing)
        batch.stored(offset)
        self._on_stored(outgoing.place)

    def _lose(self, outgoing: Outgoing, batch: Batch, kind: LossKind, reason: str, code: int = 0) -> None:
        loss = Loss(
            kind=kind,
            reason=reason,
            cause=batch.trouble or self._search.trouble,
            is_unknown=batch.may_be_stored,
            code=code,
            created_s=batch.created_s,
        )
        outgoing.complete(batch, is_stored=False)
        if outgoing.producer is None or not outgoing.has_next:
            self._departures.withdraw(outgoing)
        self._proceed(outgoing)
        batch.lost(loss)
        self._on_lost(outgoing.place, loss)

    def _found(self, outgoing: Outgoing) -> bool:
        """There may be news about what the partition needs; whether it has all of it."""
        self._desert(outgoing)
        if not outgoing.has_next:
            return True
        node = self._search.equip(outgoing)
        if node is not None:
            self._departures.make_ready(outgoing, node)
        if not self._search.trouble:
            self._note_topic(outgoing)
        return node is not None

    def _desert(self, outgoing: Outgoing) -> None:
        """Tries a batch again that is on its way to a broker that leads no more, and may never answer."""
        trip, leader = outgoing.trip, self._cluster.leader(*outgoing.place)
        if trip is not None and leader is not None and leader.node != trip.node:
            outgoing.arrive(trip, "another broker leads", is_doubtful=True)

    def _note_topic(self, outgoing: Outgoing) -> None:
        """If Kafka says that there is no such topic, after a while that is true."""
        now_s, topic = self._loop.time(), outgoing.place[0]
        if self._cluster.has(topic):
            outgoing.missing_since_s = None
        elif outgoing.missing_since_s is None:
            outgoing.missing_since_s = now_s
        elif now_s - outgoing.missing_since_s > MISSING_S:
            is_denied = self._cluster.denies(topic)
            why = f"no right to the topic {topic}" if is_denied else f"there is no topic {topic}"
            self._lose_all(outgoing, now_s, "no-topic", why)

    def _sweep(self) -> None:
        """Looks at the time of all that is on its way or waits."""
        now_s = self._loop.time()
        self._departures.release_slow(now_s)
        suspects, late = [], f"Kafka has not acknowledged for {self._deliver_s:g} s"
        for outgoing in list(self._busy):
            self._lose_all(outgoing, now_s - self._deliver_s, "late", late)
            if outgoing.current is None and not outgoing.queue:
                del self._busy[outgoing]
            elif (trip := outgoing.trip) is not None and (trip.sent_s or now_s) < now_s - SUSPECT_S:
                suspects.append(outgoing)
        # one look for all, and the next one a while later
        if suspects and now_s >= self._look_s:
            self._look_s = now_s + SUSPECT_S
            for outgoing in suspects:
                self._search.seek(outgoing)
        self._sweeping = self._loop.call_later(self._sweep_s, self._sweep) if self._busy else None

    def _lose_all(self, outgoing: Outgoing, until_s: float, kind: LossKind, reason: str) -> None:
        """Loses the batches that were created until then."""
        for batch in [outgoing.current, *outgoing.queue]:
            if batch is not None and batch.created_s <= until_s:
                self._lose(outgoing, batch, kind, reason)
