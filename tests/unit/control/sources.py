"""In-memory twins of control's sources, and a small cluster for them to report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from services.control.core.events.ownership_history import OwnershipHistory
from services.control.core.queues import (
    Act,
    DeadLetter,
    QueueOutcomeUnknown,
    QueueRow,
    QueueSettings,
    QueuesUnavailable,
    UnknownQueue,
)
from services.control.core.report.observed import (
    Answers,
    Cluster,
    Group,
    MemberStatus,
    Offsets,
    Plan,
    StreamStatus,
)
from services.control.core.report.producer_rates import ProducerCounts
from services.control.live.view.cluster_view import ClusterView
from shared.errors import KafkaUnavailable, ZooKeeperUnavailable
from shared.model.cluster import ClaimNode, MemberNode, ProducerNode, StreamNode, View
from shared.model.group import GroupSettings
from shared.model.head import Counts, Head
from shared.model.names import DEFAULT_GROUP, Names
from shared.model.routing import initial_table

MAIL = QueueRow(
    queue="mail",
    ready=5,
    leased=2,
    waiting=1,
    dead=3,
    oldest_age_s=90.0,
    settings=QueueSettings(lease_s=30, max_attempts=5, repeat_ms=300_000, keep_s=86_400),
)
LETTER = DeadLetter(
    partition=0,
    offset=4,
    id="mail/0/17",
    enqueued_at=5,
    headers={"why": "no such user", "attempts": "2", "item": "welcome-17"},
    size=13,
    text='{"to": "<b>"}',
)


@dataclass
class InMemoryCluster:
    """A `ClusterSource`. `reads` counts its readings; a mute one never answers."""

    cluster: Cluster = field(default_factory=Cluster)
    is_down: bool = False
    is_mute: bool = False
    reads: int = 0

    async def read(self) -> Cluster:
        self.reads += 1
        if self.is_mute:
            await asyncio.Event().wait()
        if self.is_down:
            raise ZooKeeperUnavailable("ZooKeeper is down for the test")
        return self.cluster


@dataclass
class InMemoryOffsets:
    """An `OffsetSource`; `leaderless`: the streams whose logs have no leader."""

    offsets: Offsets = field(default_factory=Offsets)
    leaderless: set[int] = field(default_factory=set)
    is_down: bool = False
    reads: int = 0

    async def read(self, count: int, groups: Iterable[str]) -> Offsets:
        self.reads += 1
        if self.is_down:
            raise KafkaUnavailable("Kafka is down for the test")
        wanted, led = set(groups), [n for n in range(count) if n not in self.leaderless]
        return Offsets(
            count=count,
            first={n: self.offsets.first.get(n, 0) for n in led},
            end={n: self.offsets.end.get(n, 0) for n in led},
            heads={group: heads for group, heads in self.offsets.heads.items() if group in wanted},
        )


@dataclass
class InMemoryMembers:
    """A `MemberSource`."""

    statuses: dict[tuple[str, str], MemberStatus] = field(default_factory=dict)
    plans: dict[str, tuple[str, Plan]] = field(default_factory=dict)
    reads: int = 0

    async def read(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        self.reads += 1
        known = {name: status for name, status in self.statuses.items() if name in members}
        return Answers(statuses=known, silent=frozenset(set(members) - set(known)), plans=self.plans)


@dataclass
class InMemoryProducers:
    """A `ProducerSource`; `counts` by id, of those that answer."""

    counts: dict[str, ProducerCounts] = field(default_factory=dict)

    async def read(self, producers: Mapping[str, ProducerNode]) -> dict[str, ProducerCounts]:
        return {name: counts for name, counts in self.counts.items() if name in producers}


@dataclass
class InMemoryQueues:
    """A `QueueSource`; `acts` are those that were not only asked about."""

    rows: dict[str, QueueRow] = field(default_factory=dict)
    dead: dict[str, list[DeadLetter]] = field(default_factory=dict)
    acts: list[tuple[str, Act]] = field(default_factory=list)
    is_down: bool = False
    loses_answers: bool = False

    async def read(self) -> list[QueueRow]:
        self._check()
        return list(self.rows.values())

    async def show(self, queue: str) -> QueueRow:
        self._check()
        if queue not in self.rows:
            raise UnknownQueue(f"there is no queue {queue}")
        return self.rows[queue]

    async def letters(self, queue: str, limit: int) -> list[DeadLetter]:
        await self.show(queue)
        return self.dead.get(queue, [])[:limit]

    async def act(self, queue: str, act: Act, *, dry_run: bool) -> int:
        row = await self.show(queue)
        assert row.depth is not None
        assert row.ready is not None
        dead = row.dead or 0
        if dry_run:
            return row.depth if act == "purge" else row.ready + dead
        self.acts.append((queue, act))
        ready = 0 if act == "purge" else row.ready + dead
        left = {"dead": dead, "leased": 0, "waiting": 0} if act == "purge" else {"dead": 0}
        self.rows[queue] = msgspec.structs.replace(row, ready=ready, **left)
        if self.loses_answers:
            raise QueueOutcomeUnknown("the answer is lost for the test")
        return ready

    def _check(self) -> None:
        if self.is_down:
            raise QueuesUnavailable("the queue workers are down for the test")


@dataclass
class Sources:
    """All sources of one small Baton, and a steady clock that only tests move."""

    cluster: InMemoryCluster = field(default_factory=InMemoryCluster)
    offsets: InMemoryOffsets = field(default_factory=InMemoryOffsets)
    members: InMemoryMembers = field(default_factory=InMemoryMembers)
    producers: InMemoryProducers = field(default_factory=InMemoryProducers)
    queues: InMemoryQueues = field(default_factory=InMemoryQueues)
    now_s: float = 1000.0

    @property
    def reads(self) -> int:
        """The number of readings of all sources."""
        return self.cluster.reads + self.offsets.reads + self.members.reads

    def view(
        self,
        *,
        refresh_s: float = 0.5,
        status_window_s: float = 20.0,
        ownership_history: OwnershipHistory | None = None,
    ) -> ClusterView:
        """A view on these sources."""
        return ClusterView(
            self.cluster,
            self.offsets,
            self.members,
            self.producers,
            Names(),
            refresh_s=refresh_s,
            status_window_s=status_window_s,
            ownership_history=ownership_history,
            clock=lambda: self.now_s,
            now_ms=lambda: int(self.now_s * 1000),
        )


def head(position: int, *, epoch: int = 1, seq: int = 1, safe: int | None = None, sessions: int = 0) -> Head:
    """A head; the safe offset is the position unless given."""
    counts = Counts(fragments=position, bytes=position * 10, sessions=sessions)
    safe_offset = position if safe is None else safe
    return Head(epoch=epoch, seq=seq, position=position, safe_offset=safe_offset, counts=counts)


def small_baton(count: int = 4) -> Sources:
    """`count` streams of 100 records. m1 runs stream 0, and owns 1 in an epoch that it has not reported yet;
    m2, which is silent, owns 2; the others have neither owner nor head.
    """
    nodes = {n: StreamNode(epoch=3, owner="m1", address="http://m1") for n in range(3)}
    claims = {0: ("m1", 3), 1: ("m1", 3), 2: ("m2", 3)}
    view = View(
        count=count,
        members={
            "m1": MemberNode(address="http://m1", pid=11, since=5),
            "m2": MemberNode(address="http://m2", pid=12, since=6),
        },
        claims={n: ClaimNode(member=member, epoch=epoch) for n, (member, epoch) in claims.items()},
        nodes=nodes,
    )
    status = MemberStatus(
        id="m1",
        group=DEFAULT_GROUP,
        lease_ms=4000,
        lease_length_ms=4500,
        zookeeper_session="0xa",
        streams=[
            StreamStatus(stream=0, epoch=3, state="running", position=95, open_sessions=7, state_bytes=700),
            StreamStatus(stream=1, epoch=2, state="running", position=50, open_sessions=9),
        ],
    )
    plan = Plan(moves=[], quota={"m1": 2, "m2": 2})
    return Sources(
        cluster=InMemoryCluster(
            Cluster(
                count=count,
                stream_table=initial_table(count).encode().decode(),
                groups={DEFAULT_GROUP: Group(settings=GroupSettings(), view=view)},
                producers={"p1": ProducerNode(address="http://p1", pid=21, since=7)},
            )
        ),
        offsets=InMemoryOffsets(
            Offsets(
                first=dict.fromkeys(range(count), 0),
                end=dict.fromkeys(range(count), 100),
                heads={DEFAULT_GROUP: {0: head(90, epoch=3, safe=80, sessions=4), 1: head(100), 2: head(60)}},
            )
        ),
        members=InMemoryMembers({(DEFAULT_GROUP, "m1"): status}, {DEFAULT_GROUP: ("m1", plan)}),
        queues=InMemoryQueues({"mail": MAIL}, {"mail": [LETTER]}),
    )
