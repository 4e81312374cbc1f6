"""A cluster that exists only in memory, for control to read: any number of streams and members, in motion."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping

from services.control.core.report.observed import (
    Answers,
    Cluster,
    Group,
    MemberStatus,
    Offsets,
    Plan,
    Rates,
    StreamStatus,
)
from services.control.live.feed.feed import EventFeed
from shared.model.balance import plan
from shared.model.cluster import ClaimNode, MemberNode, PauseNode, ProducerNode, StreamNode, View
from shared.model.events import Event, encode_event
from shared.model.group import GroupSettings
from shared.model.head import Counts, Head
from shared.model.names import DEFAULT_GROUP
from shared.model.routing import initial_table

REFRESH_S = 0.5
MOVES_PER_S = 0.5
COMMIT_EVERY = 3
DRAINED = 15
"""Streams that a draining member hands over between two readings: one takes about 30 ms."""
LEAVES_AFTER = 10
"""Readings for which a drained member stays."""


class SimulatedCluster:
    """All sources of control. Each reading of the offsets changes `changes_per_s` × REFRESH_S streams."""

    def __init__(
        self, streams: int, members: int, changes_per_s: float, feed: EventFeed, seed: int = 1
    ) -> None:
        self._random = random.Random(seed)
        self._streams = streams
        self._table = initial_table(streams).encode().decode()
        self._members = [f"edge-{n:02d}" for n in range(members)]
        self._changes = round(changes_per_s * REFRESH_S)
        self._feed = feed
        feed.begin(0)
        feed.mark_current()
        self._owner = [self._members[n % members] for n in range(streams)]
        self._epoch = [1] * streams
        self._end = [self._random.randrange(1_000, 90_000) for _ in range(streams)]
        self._position = [end - self._random.randrange(60) for end in self._end]
        self._open = [self._random.randrange(400, 1_200) for _ in range(streams)]
        self._seq = [1] * streams
        self._slow = {streams * 2 // 3, streams // 5}
        self._since = time.time_ns() // 1_000_000
        self._event = 0
        self._rounds = 0
        self._pins = {streams // 2: self._owner[streams // 2]}
        self._draining: set[str] = set()
        self._emptied: dict[str, int] = {}
        self._pause: PauseNode | None = None

    def __repr__(self) -> str:
        return f"<SimulatedCluster of {self._streams} streams on {len(self._members)} members>"

    async def read_cluster(self) -> Cluster:
        """What ZooKeeper holds."""
        view = self._view()
        return Cluster(
            count=self._streams,
            stream_table=self._table,
            groups={DEFAULT_GROUP: Group(settings=GroupSettings(), view=view)},
            producers={"web-1": ProducerNode(address="http://10.0.4.2:8000", pid=7, since=self._since)},
        )

    async def change(self, group: str, change: Callable[[Mapping[int, str]], dict[int, str]]) -> None:
        """Changes the pins, as a `PinStore`."""
        self._pins = change(self._pins)

    async def drain(self, group: str, member: str, address: str, why: str) -> None:
        """Lets a member hand over its streams, DRAINED in each reading, as a `MemberDrain`."""
        self._draining.add(member)

    async def undrain(self, group: str, member: str, address: str, why: str) -> None:
        """Lets it take streams again."""
        self._draining.discard(member)

    async def pause(self, group: str, pause: PauseNode) -> None:
        """Pauses the group, as a `PauseStore`."""
        self._pause = pause

    async def resume(self, group: str) -> None:
        """Ends the pause."""
        self._pause = None

    def _view(self) -> View:
        return View(
            count=self._streams,
            members={
                name: MemberNode(
                    address=f"http://10.0.4.{n + 10}:8010",
                    pid=100 + n,
                    since=self._since,
                    state="draining" if name in self._draining else "active",
                )
                for n, name in enumerate(self._members)
            },
            claims={n: ClaimNode(member=self._owner[n], epoch=self._epoch[n]) for n in range(self._streams)},
            nodes={n: StreamNode(epoch=self._epoch[n], owner=self._owner[n]) for n in range(self._streams)},
            pins=self._pins,
            pause=self._pause,
        )

    async def read_offsets(self, count: int, groups: Iterable[str]) -> Offsets:
        """What Kafka holds, after the world has moved on a little."""
        self._step()
        heads = {
            n: Head(
                epoch=self._epoch[n],
                seq=self._seq[n],
                position=self._position[n],
                safe_offset=max(0, self._position[n] - 900),
                counts=Counts(fragments=self._position[n], bytes=self._position[n] * 200, sessions=n),
            )
            for n in range(count)
        }
        return Offsets(
            count=count,
            first=dict.fromkeys(range(count), 0),
            end=dict(enumerate(self._end)),
            heads={DEFAULT_GROUP: heads},
        )

    async def read_members(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        """What the members answer."""
        owned: dict[str, list[int]] = {name: [] for name in self._members}
        for stream, owner in enumerate(self._owner):
            owned[owner].append(stream)
        statuses = {
            (DEFAULT_GROUP, name): MemberStatus(
                id=name,
                group=DEFAULT_GROUP,
                since=self._since,
                lease_ms=4_400,
                lease_length_ms=4_500,
                rates=Rates(fragments_per_s=50 + n, bytes_per_s=1e4, sessions_per_s=4 + n / 10),
                streams=[
                    StreamStatus(
                        stream=stream,
                        epoch=self._epoch[stream],
                        state="running",
                        position=self._position[stream],
                        open_sessions=self._open[stream],
                        state_bytes=self._open[stream] * 5_300,
                    )
                    for stream in owned[name]
                ],
            )
            for n, name in enumerate(self._members)
        }
        quota = {name: len(streams) for name, streams in owned.items()}
        return Answers(statuses=statuses, plans={DEFAULT_GROUP: (self._members[0], Plan(quota=quota))})

    def _step(self) -> None:
        self._rounds += 1
        chance = self._random
        for stream in chance.sample(range(self._streams), min(self._changes, self._streams)):
            self._end[stream] += chance.randrange(1, 40)
            self._open[stream] = max(1, self._open[stream] + chance.randrange(-9, 10))
            if stream not in self._slow and chance.random() < 0.8:
                self._position[stream] = max(self._position[stream], self._end[stream] - chance.randrange(40))
                self._seq[stream] += 1
        for stream in self._slow:
            self._end[stream] += 400
            if self._rounds % COMMIT_EVERY == 0:
                self._position[stream] += 300
                self._seq[stream] += 1
        if self._draining and self._drain():
            return
        if len(self._members) > 1 and chance.random() < MOVES_PER_S * REFRESH_S:
            self._carry_out()

    def _drain(self) -> bool:
        """Hands over streams of draining members; False if they have none. Such a member leaves."""
        owner = plan(self._view()).owner
        held = [stream for stream, member in enumerate(self._owner) if member in self._draining]
        for stream in held[:DRAINED]:
            self._move(stream, owner[stream], why=f"{self._owner[stream]} is draining")
        for member in self._draining - set(self._owner):
            if self._rounds >= self._emptied.setdefault(member, self._rounds) + LEAVES_AFTER:
                self._members.remove(member)
                self._draining.remove(member)
                del self._emptied[member]
        return bool(held)

    def _carry_out(self) -> None:
        """Moves a stream to where the plan wants it, if there is one elsewhere."""
        owner = plan(self._view()).owner
        for stream, target in owner.items():
            if self._owner[stream] != target:
                self._move(stream, target)
                return
        stream = self._random.randrange(self._streams)
        others = [one for one in self._members if one not in {self._owner[stream], *self._draining}]
        if others:
            self._move(stream, self._random.choice(others))

    def _move(self, stream: int, target: str, why: str = "") -> None:
        source = self._owner[stream]
        self._owner[stream] = target
        self._epoch[stream] += 1
        event = Event(
            at=time.time_ns() // 1_000_000,
            group=DEFAULT_GROUP,
            kind="handover",
            stream=stream,
            epoch=self._epoch[stream],
            source=source,
            target=target,
            why=why or f"pinned to {target}",
            sessions=self._open[stream],
            bytes=self._open[stream] * 5_300,
            copy_ms=round(self._random.uniform(20, 60), 1),
            pause_ms=round(self._random.lognormvariate(3.8, 0.4), 1),
            warm=True,
        )
        self._feed.receive([(self._event, encode_event(event))])
        self._event += 1
