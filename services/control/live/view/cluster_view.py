"""The cached view of the cluster: read in the background, served to every request.

No request reaches ZooKeeper, Kafka or a member, and only what a request asks for is encoded. While a
source fails, its last good reading is served, `stale_ms` grows, and `/readyz` complains.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from services.control.core.events.ownership_history import OwnershipHistory
from services.control.core.report.lag_history import LagHistory, Trend
from services.control.core.report.observed import Answers, Cluster, Group, Observed, Offsets
from services.control.core.report.producer_rates import ProducerCounts, ProducerRate, ProducerRates
from services.control.core.report.report import Report, group_names, report_on, samples_for, stream_detail
from services.control.core.report.rows import PlanRow, StreamDetail, StreamRow
from services.control.live.view.reading import Reading
from services.control.ports import ClusterSource, MemberSource, OffsetSource, ProducerSource
from shared.errors import KafkaUnavailable, NotFound, Unavailable, ZooKeeperUnavailable
from shared.model.names import Names
from shared.model.start import GroupStart

PATIENCE_S = 5.0
"""`/readyz` complains about a source whose last good reading is older than this plus four refreshes."""

T = TypeVar("T")


class UnknownGroup(NotFound):
    """There is no group of that name."""


class UnknownStream(NotFound):
    """There is no stream of that number; `count` is how many there are."""

    def __init__(self, stream: int, count: int) -> None:
        known = f"there are 0 … {count - 1}" if count else "there are none yet"
        super().__init__(f"there is no stream {stream}; {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One reading. `has_cluster`, `has_offsets`: whether ZooKeeper, whether Kafka has been read."""

    has_cluster: bool
    has_offsets: bool
    observed: Observed
    report: Report


class ClusterView:
    """`run()` keeps the view current; everything else answers from memory.

    `ownership_history` is filled by the feed of events. `clock` is steady, in s; `now_ms` is the wall clock.
    """

    def __init__(
        self,
        cluster: ClusterSource,
        offsets: OffsetSource,
        members: MemberSource,
        producers: ProducerSource,
        names: Names,
        *,
        refresh_s: float,
        status_window_s: float,
        ownership_history: OwnershipHistory | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._names = names
        self._ownership_history = ownership_history or OwnershipHistory()
        self._refresh_s = refresh_s
        self._window_ms = int(status_window_s * 1000)
        self._clock = clock
        self._cluster = Reading("ZooKeeper", Cluster(), cluster.read, clock, now_ms)
        self._offsets = Reading("Kafka", Offsets(), lambda: self._read_offsets(offsets), clock, now_ms)
        self._answers = Reading("the members", Answers(), lambda: self._read_members(members), clock, now_ms)
        self._histories: dict[str, LagHistory] = {}
        self._trends: dict[str, dict[int, Trend]] = {}
        self._judged_at: float | None = None
        self._producers = Reading(
            "the producers",
            dict[str, ProducerCounts](),
            lambda: self._read_producers(producers),
            clock,
            now_ms,
        )
        self._producer_history = ProducerRates()
        self._producer_rates: dict[str, ProducerRate] = {}
        self._rated_at: float | None = None
        self._composing = asyncio.Lock()
        self._served = _serve(Observed(), report_on(Observed(), {}), has_cluster=False)

    def __repr__(self) -> str:
        return f"<ClusterView, {self.stale_ms()} ms old>"

    async def run(self) -> None:
        """Reads until cancelled, each source at its own pace, so a source that hangs delays no other."""
        async with asyncio.TaskGroup() as tasks:
            # one task per source: ZooKeeper may hang for seconds while Kafka and the members answer
            for reading in self._readings:
                tasks.create_task(self._repeat(reading.step), name=f"read {reading.name}")
            tasks.create_task(self._repeat(self._compose), name="compose the view")

    async def step(self) -> None:
        """Reads every source once, then composes what is served."""
        for reading in self._readings:
            await reading.step()
        await self._compose()

    async def look_again(self) -> None:
        """Reads the cluster once more, so that what was just written is served."""
        await self._cluster.step()
        await self._compose()

    def served(self, *, with_offsets: bool = True) -> Served:
        """What to serve. Raises Unavailable until every source that it needs has been read once."""
        # an empty answer would look like an empty cluster, so the caller gets a 503 until there is a reading
        if not self._served.has_cluster:
            raise ZooKeeperUnavailable(self._cluster.complaint())
        if with_offsets and not self._served.has_offsets:
            raise KafkaUnavailable(self._offsets.complaint())
        return self._served

    def rows(self) -> list[StreamRow]:
        """The streams of all groups. Raises Unavailable until the cluster has been read once."""
        groups = self.served(with_offsets=False).report.streams.values()
        return [row for rows in groups for row in rows]

    def check_group(self, group: str) -> None:
        """Returns if there is such a group; `default` always is. Raises UnknownGroup, Unavailable."""
        self.plan(group)

    def streams(self, group: str) -> Sequence[StreamRow]:
        """The streams of a group: row n is stream n. Raises UnknownGroup, Unavailable."""
        return _of_group(self.served().report.streams, group)

    def plan(self, group: str) -> PlanRow:
        """What would move in the group. Raises UnknownGroup, Unavailable."""
        return _of_group(self.served(with_offsets=False).report.plans, group)

    def group(self, group: str) -> Group:
        """The group in ZooKeeper. Raises UnknownGroup, Unavailable."""
        return _of_group(self.served(with_offsets=False).observed.cluster.groups, group)

    def chain(self, group: str) -> list[GroupStart]:
        """The group's start, that of the group it follows, and so on. Raises Unavailable."""
        return self.served(with_offsets=False).observed.cluster.chain(group)

    def named(self, name: str) -> str:
        """The group that an alias names; any other name as it is. Raises Unavailable."""
        return self.aliases().get(name, name)

    def aliases(self) -> Mapping[str, str]:
        """The other names of groups, alias → group. Raises Unavailable."""
        return self.served(with_offsets=False).observed.cluster.aliases

    def stream_table(self) -> str:
        """The JSON of the stream table; "" without one. Raises Unavailable."""
        return self.served(with_offsets=False).observed.cluster.stream_table

    def stream(self, group: str, stream: int) -> StreamDetail:
        """All that is known of one stream. Raises UnknownGroup, UnknownStream, Unavailable."""
        rows = self.streams(group)
        if not 0 <= stream < len(rows):
            raise UnknownStream(stream, len(rows))
        return stream_detail(self._served.observed, group, rows[stream], self._names.fragments(stream))

    def stale_ms(self) -> int:
        """Age of the oldest reading that is served, in ms."""
        ages = [self._clock() - reading.read_at for reading in self._readings if reading.read_at is not None]
        return int(max(ages, default=0.0) * 1000)

    def complaints(self) -> list[str]:
        """One sentence per source that cannot be read now, and why pages cannot be shown yet."""
        found = dict.fromkeys(self.unread())
        try:
            self.served()
        except Unavailable as error:
            found[error.reason] = None
        return list(found)

    def unread(self) -> dict[str, int | None]:
        """When each source that cannot be read now was read last (ms UTC), by its complaint; None: never."""
        patience_s = PATIENCE_S + 4 * self._refresh_s
        return {
            reading.complaint(): reading.read_ms for reading in self._readings if reading.is_late(patience_s)
        }

    @property
    def _readings(
        self,
    ) -> tuple[Reading[Cluster], Reading[Offsets], Reading[Answers], Reading[dict[str, ProducerCounts]]]:
        return (self._cluster, self._offsets, self._answers, self._producers)

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            await step()
            await asyncio.sleep(self._refresh_s)

    async def _read_offsets(self, source: OffsetSource) -> Offsets:
        cluster = self._cluster.value
        return await source.read(cluster.count, sorted(cluster.groups))

    async def _read_members(self, source: MemberSource) -> Answers:
        groups = self._cluster.value.groups
        return await source.read(
            {(name, member): node for name in groups for member, node in groups[name].view.members.items()}
        )

    async def _read_producers(self, source: ProducerSource) -> dict[str, ProducerCounts]:
        return await source.read(self._cluster.value.producers)

    async def _compose(self) -> None:
        async with self._composing:  # an older reading must not replace a newer one
            await self._compose_alone()

    async def _compose_alone(self) -> None:
        if self._producers.read_at != self._rated_at:
            self._producer_rates = self._producer_history.observe(self._producers.value)
            self._rated_at = self._producers.read_at
        has_cluster = self._cluster.read_at is not None
        observed = Observed(
            cluster=self._cluster.value,
            offsets=self._offsets.value,
            answers=self._answers.value,
            producer_rates=self._producer_rates,
            ownership_history=self._ownership_history,
        )
        # while Kafka is away, the old reading is served again: it says nothing new about the streams
        if self._offsets.read_at is not None and self._offsets.read_at != self._judged_at:
            self._judge(observed, int(self._offsets.read_at * 1000))
            self._judged_at = self._offsets.read_at
            # both halves take long with a thousand streams: let requests in between
            await asyncio.sleep(0)
        self._served = _serve(observed, report_on(observed, self._trends), has_cluster=has_cluster)

    def _judge(self, observed: Observed, at_ms: int) -> None:
        self._histories = {
            # a group that is gone loses its history, and starts a new one when it returns
            group: self._histories.get(group) or LagHistory(self._window_ms)
            for group in group_names(observed)
        }
        self._trends = {
            group: history.observe(samples_for(observed, group, at_ms))
            for group, history in self._histories.items()
        }


def _of_group(values: Mapping[str, T], group: str) -> T:
    if group not in values:
        raise UnknownGroup(f"there is no group {group!r}")
    return values[group]


def _serve(observed: Observed, report: Report, *, has_cluster: bool) -> Served:
    return Served(
        has_cluster=has_cluster,
        # the table may have grown since Kafka was read: logs that nobody asked about are not without a leader
        has_offsets=has_cluster and observed.offsets.count >= observed.cluster.count,
        observed=observed,
        report=report,
    )
