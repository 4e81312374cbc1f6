"""Reads many partitions over two connections to each broker; they come and go without waiting.

A broker answers one request of a connection at a time, so a partition that came late would wait for the end
of the long poll under way. Therefore partitions that are new, were sought or had no room are fetched over a
connection of their own, again and again, until the next long poll includes them (`fetch_lane.py`). What was
fetched waits in each `Reading` until it is taken. One with much to take is left out, and all together hold a
bounded number of bytes. Of these, half is for whoever comes first, and the rest is shared: readers that take
nothing keep nobody else from reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping

from shared.errors import KafkaUnavailable
from shared.kafka.connect.cluster import MOVED, Cluster
from shared.kafka.connect.refusals import reason_of
from shared.kafka.read.fetch_lane import PACE_S, Budget, FetchLane
from shared.kafka.read.offsets import EARLIEST, list_offsets
from shared.kafka.read.reading import Reading
from shared.kafka.wire.fetch import FetchedPartition, Place, Wish

logger = logging.getLogger(__name__)

MAX_BUFFERED_BYTES = 64 * 1024 * 1024
LEAST_SHARE = 16 * 1024
SOON_S = 0.25
"""Leaders that are to be looked for within this time are looked for together."""

# error codes of Kafka
_NONE, _OUT_OF_RANGE = 0, 1


class Fetcher:
    """Reads partitions of one cluster; `close` it at the end. `max_bytes`: bounds what waits to be taken.

    With `is_committed`, it leaves out aborted transactions, and waits for open ones to end. `pace_s`: a pause
    after each small answer, so that more may gather; with 0 a record is there as soon as it can be.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        max_bytes: int = MAX_BUFFERED_BYTES,
        is_committed: bool = False,
        pace_s: float = PACE_S,
    ) -> None:
        self.is_committed = is_committed
        self._pace_s = pace_s
        self._cluster = cluster
        self._max_bytes = max_bytes
        self._readings: dict[Reading, None] = {}
        """Those that got records last come last: a broker fills an answer in the order of the request."""
        self._lost: set[Reading] = set()
        """Those whose leader is unknown or in doubt: they are not fetched."""
        self._overtaken: set[Reading] = set()
        """Those that look for the log's start: they are not fetched either."""
        self._doubted = asyncio.Event()
        self._lanes: dict[int, tuple[FetchLane, FetchLane]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_finding = False
        self._is_full = False
        """Whether nobody was fetched for lack of room."""

    def __repr__(self) -> str:
        return f"<Fetcher of {len(self._readings)} partitions over {self._cluster!r}>"

    def budget(self) -> Budget:
        """What may be fetched now.

        Once half of the room is taken, only those with less than their share of the rest are fetched, and
        little at a time. Beyond the bound nobody is, until somebody takes something.
        """
        held = sum(reading.size for reading in self._readings)
        share = max(LEAST_SHARE, self._max_bytes // (4 * max(1, len(self._readings))))
        if (left := self._max_bytes // 2 - held) > 0:
            return Budget(self._max_bytes, max(share, left))
        if held < self._max_bytes:
            return Budget(share, share)
        self._is_full = True
        for reading in self._readings:
            reading.is_left_out = True
        return Budget(-1, share)

    def read(self, topic: str, partition: int, offset: int) -> Reading:
        """Begins to read the partition at the offset. End it with `forget`."""
        reading = Reading(topic, partition, offset, self._changed, is_committed=self.is_committed)
        self._readings[reading] = None
        self._changed(reading)
        return reading

    def forget(self, reading: Reading) -> None:
        """Ends the reading."""
        self._readings.pop(reading, None)
        self._lost.discard(reading)
        self._doubted.set()
        self._wake_all()

    async def close(self) -> None:
        """Ends all readings; never raises. The cluster stays open."""
        self._readings.clear()
        self._lost.clear()
        self._overtaken.clear()
        lanes = [lane for pair in self._lanes.values() for lane in pair]
        self._lanes.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(lane.close() for lane in lanes), return_exceptions=True)

    def of_broker(self, node: int) -> Iterable[Reading]:
        """The readings that this broker leads."""
        return (one for one in self._readings if one.leader is not None and one.leader.node == node)

    def take_over(
        self, partitions: Iterable[FetchedPartition], asked: Mapping[Place, tuple[Reading, Wish]]
    ) -> None:
        """Gives each reading its part of an answer."""
        for fetched in partitions:
            reading, wish = asked.get(fetched.place, (None, None))
            if reading is None or wish is None or reading.leader is None:
                continue
            place, present = reading.ask
            # sought or fetched elsewhere meanwhile, or the topic was made anew
            if wish.offset != present.offset or fetched.place != place:
                continue
            if fetched.error == _NONE and fetched.diverges_at is None:
                reading.accept(fetched, wish.max_bytes)
                if fetched.records and reading in self._readings:
                    self._readings[reading] = self._readings.pop(reading)
            else:
                self._refused(reading, fetched)

    def interrupted(self, node: int) -> None:
        """A connection broke: another broker may lead by now, or the same one may have another log."""
        self._doubt(list(self.of_broker(node)))
        for lane in self._lanes.get(node, ()):
            lane.accept_next_connection()

    def _changed(self, reading: Reading) -> None:
        """Finds the reading's leader, and wakes the lanes to that broker."""
        self._wake_all()
        if reading not in self._readings or reading in self._lost or reading in self._overtaken:
            return
        leader = self._cluster.leader(reading.topic, reading.partition)
        if leader is None:
            self._doubt([reading])
            return
        before, reading.leader = reading.leader, leader
        if before is not None and before.topic_id != leader.topic_id:
            reading.repeat()  # it comes back to here, with the id of the new log
            return
        lanes = self._lanes.get(leader.node)
        if lanes is None:
            lanes = (
                FetchLane(self, self._cluster, leader.node, "first", self._pace_s),
                FetchLane(self, self._cluster, leader.node, "poll", self._pace_s),
            )
            self._lanes[leader.node] = lanes
        for lane in lanes:
            lane.wake()

    def _wake_all(self) -> None:
        """Somebody has made room, if there was none."""
        if self._is_full:
            self._is_full = False
            for lane in itertools.chain.from_iterable(self._lanes.values()):
                lane.wake()

    def _refused(self, reading: Reading, fetched: FetchedPartition) -> None:
        """The fetch of one partition was refused; this concerns no other."""
        logger.info(
            "fetch refused",
            extra={"topic": reading.topic, "partition": reading.partition, "error": fetched.error},
        )
        if fetched.diverges_at is not None:
            reading.repeat()
        elif fetched.error == _OUT_OF_RANGE:
            reading.leader = None
            self._overtaken.add(reading)
            self._start(self._seek_start(reading))
        elif fetched.error in MOVED:
            if fetched.leader is not None and self._cluster.correct(
                reading.topic, reading.partition, *fetched.leader
            ):
                reading.repeat()
            else:
                self._doubt([reading])
        else:
            reading.fail(f"Kafka refuses to be read: {reason_of(fetched.error)}")

    def _doubt(self, readings: Iterable[Reading]) -> None:
        """Leaves the readings out until the metadata has been read again."""
        for reading in readings:
            self._lost.add(reading)
            reading.doubt()
            reading.repeat()
        self._doubted.set()
        if not self._is_finding:
            self._is_finding = True
            self._start(self._find_leaders())

    async def _find_leaders(self) -> None:
        """Reads the metadata until no reading is without a leader."""
        loop = asyncio.get_running_loop()
        try:
            while self._lost:
                self._doubted.clear()
                now_s, next_s = loop.time(), min(reading.look_at_s for reading in self._lost)
                if next_s <= now_s:
                    await self._look([one for one in self._lost if one.look_at_s <= now_s + SOON_S])
                    continue
                # a reading that is new in doubt does not wait for the others
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(next_s):
                        await self._doubted.wait()
        finally:
            self._is_finding = False

    async def _look(self, due: Collection[Reading]) -> None:
        """Reads the metadata once; whatever still has no leader is due again later."""
        try:
            await self._cluster.refresh({reading.topic for reading in due})
        except KafkaUnavailable as error:
            logger.warning("leaders unknown", extra={"why": error.detail})
        except Exception:  # a fault of ours: without the search nothing would be read any more
            logger.exception("looking for leaders failed")
        for reading in due:
            if self._cluster.leader(reading.topic, reading.partition) is not None:
                self._found(reading)
                continue
            reading.doubt()
            if self._cluster.denies(reading.topic):
                reading.fail(f"Kafka refuses {reading.topic}: a right is missing")

    async def _seek_start(self, reading: Reading) -> None:
        """Retention has overtaken the reader, or the log is shorter than before: goes on where it begins."""
        partition, overtaken_at = (reading.topic, reading.partition), reading.next_offset
        try:
            starts = await list_offsets(self._cluster, [partition], EARLIEST)
            if reading.next_offset == overtaken_at:  # else its reader has sought meanwhile
                reading.seek(starts[partition])
        except KafkaUnavailable as error:
            reading.fail(error.detail)
        self._overtaken.discard(reading)
        self._changed(reading)

    def _found(self, reading: Reading) -> None:
        self._lost.discard(reading)
        self._changed(reading)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="fetcher")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
